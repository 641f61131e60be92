package outboxfx

import (
	"errors"
	"fmt"

	"go.uber.org/fx"

	"github.com/outboxkit/outbox-go/outbox"
)

// AsInterceptor puts what a constructor returns, an [outbox.Interceptor], or
// that and an error, around every delivery: behind those of [WithInterceptors],
// in the order of the options. The outbox is made of its interceptors, so they
// cannot depend on its writer.
func AsInterceptor(ctor any, forOutboxes ...Target) fx.Option {
	outboxes, err := outboxesOf(forOutboxes)
	if err := errors.Join(checkConstructor[outbox.Interceptor](ctor), err); err != nil {
		return fx.Error(fmt.Errorf("outboxfx: AsInterceptor %w", err))
	}
	return contribute("the interceptor", "", ctor, outboxes, func(made outbox.Interceptor) (outbox.Interceptor, error) {
		if made == nil {
			return nil, errors.New("it is nil")
		}
		return made, nil
	})
}

// AsHook lets what a constructor returns, an [outbox.WriterHook], or that and an
// error, take part in every write: behind those of [WithHooks], in the order of
// the options. Like interceptors, hooks cannot depend on the outbox's writer.
func AsHook(ctor any, forOutboxes ...Target) fx.Option {
	outboxes, err := outboxesOf(forOutboxes)
	if err := errors.Join(checkConstructor[outbox.WriterHook](ctor), err); err != nil {
		return fx.Error(fmt.Errorf("outboxfx: AsHook %w", err))
	}
	return contribute("the hook", "", ctor, outboxes, func(made outbox.WriterHook) (outbox.WriterHook, error) {
		return made, nil
	})
}
