package outboxfx_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/fx"

	outboxfx "github.com/outboxkit/outbox-go/fxmodule"
	"github.com/outboxkit/outbox-go/outbox"
)

// inboxOf is a constructor whose dependency has a name.
func inboxOf(i *inbox) *inbox { return i }

// supplied are inboxes under names.
func supplied(boxes map[string]*inbox) fx.Option {
	var options []fx.Option
	for name, box := range boxes {
		options = append(options, fx.Supply(fx.Annotate(box, fx.ResultTags(`name:"`+name+`"`))))
	}
	return fx.Options(options...)
}

func TestConstructorsMayBeAnnotated(t *testing.T) {
	t.Parallel()
	db, mail, search, other := newPool(), newInbox(), newInbox(), newInbox()
	annotated := func(name string) any {
		return fx.Annotate(inboxOf, fx.ParamTags(`name:"`+name+`"`), fx.As(new(outbox.Listener)))
	}
	var w *outbox.Writer
	var app outbox.Listener
	hook := func(i *inbox) outbox.WriterHook {
		return outbox.WriterHook{AfterWrite: func(context.Context, []outbox.Envelope) { i.note("written") }}
	}
	interceptor := func(i *inbox) (outbox.Interceptor, error) {
		return outbox.Before(func(context.Context, outbox.Envelope) error { i.note("delivered"); return nil }), nil
	}
	binding := func(i *inbox) outbox.Binding { return outbox.On("Order", "Placed", i, outbox.Named("third")) }
	third, notes := newInbox(), newInbox()
	started(t, fx.Supply(db), fx.Populate(&w, &app), outboxfx.NewModule(inMemory()),
		supplied(map[string]*inbox{"mail": mail, "search": search, "third": third, "notes": notes}),
		fx.Provide(func() outbox.Listener { return other }), // the app's own, which is no listener of the outbox
		outboxfx.AsListener(annotated("mail"), outboxfx.On("Order", "Placed"), outboxfx.As("mail")),
		outboxfx.AsListener(annotated("search"), outboxfx.On("Order", "Placed"), outboxfx.As("search")),
		outboxfx.AsBinding(fx.Annotate(binding, fx.ParamTags(`name:"third"`))),
		outboxfx.AsInterceptor(fx.Annotate(interceptor, fx.ParamTags(`name:"notes"`))),
		outboxfx.AsHook(fx.Annotate(hook, fx.ParamTags(`name:"notes"`))))
	write(t, db, w, placed("o-1"))
	for _, box := range []*inbox{mail, search, third} {
		box.awaits(t, "o-1")
	}
	notes.awaits(t, "written", "delivered")
	require.Empty(t, other.notes())
}

func TestAnAppProvidesBindingsInTheGroup(t *testing.T) {
	t.Parallel()
	db, orders, box, second, several := newPool(), newPool(), newInbox(), newInbox(), newInbox()
	var w, ofOrders *outbox.Writer
	bindings := func() ([]outbox.Binding, error) {
		return []outbox.Binding{outbox.On("Order", "Paid", several), outbox.On("Order", "Sent", several)}, nil
	}
	started(t, fx.Supply(db), named("orders", orders),
		outboxfx.NewModule(inMemory()), outboxfx.NewModule(outboxfx.Named("orders"), inMemory()),
		fx.Provide(
			fx.Annotate(func() outbox.Binding { return outbox.On("Order", "Placed", box) }, fx.ResultTags(`group:"outbox"`)),
			fx.Annotate(bindings, fx.ResultTags(`group:"outbox,flatten"`)),
			fx.Annotate(func() outbox.Binding { return outbox.On("Order", "Placed", second) }, fx.ResultTags(`group:"outbox.orders"`)),
		),
		fx.Populate(&w), fx.Populate(fx.Annotate(&ofOrders, fx.ParamTags(`name:"orders"`))))
	write(t, db, w, placed("o-1"))
	paid := placed("o-2")
	paid.EventType = "Paid"
	write(t, db, w, paid)
	write(t, orders, ofOrders, placed("o-3"))
	box.awaits(t, "o-1")
	several.awaits(t, "o-2")
	second.awaits(t, "o-3")
}

func TestAnnotatedConstructorsThatDoNotFit(t *testing.T) {
	t.Parallel()
	pair := outboxfx.On("Order", "Placed")
	failing := func() (outbox.Listener, error) { return nil, errors.New("smtp down") }
	for name, tt := range map[string]struct {
		option fx.Option
		want   []string
	}{
		"no outbox.Listener": {
			outboxfx.AsListener(fx.Annotate(newInbox), pair), []string{"missing type: outbox.Listener"},
		},
		"a dependency that is missing": {
			outboxfx.AsListener(fx.Annotate(needyListener, fx.As(new(outbox.Listener))), pair), []string{"missing type: *outboxfx_test.absent"},
		},
		"an annotation that cannot be": {
			outboxfx.AsListener(fx.Annotate(newInbox, fx.ResultTags("a"), fx.ResultTags("b")), pair), []string{"fx.Annotate", "newInbox"},
		},
		"it fails": {
			outboxfx.AsListener(fx.Annotate(failing), pair), []string{"smtp down"},
		},
		"no constructor": {
			outboxfx.AsListener(fx.Annotate(1), pair), []string{"must provide constructor function"},
		},
		"two of one pair": {
			fx.Options(outboxfx.AsListener(newInbox, pair), fx.Provide(fx.Annotate(func() outbox.Binding { return outbox.On("Order", "Placed", newInbox()) }, fx.ResultTags(`group:"outbox"`)))),
			[]string{`a binding in group:"outbox" and the listener fxmodule_test.newInbox: outbox: duplicate listener`},
		},
	} {
		err := newError(fx.Supply(newPool()), outboxfx.NewModule(inMemory()), tt.option)
		for _, want := range tt.want {
			require.ErrorContains(t, err, want, name)
		}
	}
}
