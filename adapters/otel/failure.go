package outboxotel

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/outboxkit/outbox-go/outbox"
)

// failed reports whether a listener failed. A listener that waits for something did not fail.
func failed(err error) bool {
	var several *outbox.ListenersError
	if errors.As(err, &several) {
		return slices.ContainsFunc(several.Failures, func(f outbox.ListenerFailure) bool { return failed(f.Err) })
	}
	var decided *outbox.OutcomeError
	waits := errors.As(err, &decided) && decided.Outcome == outbox.OutcomeDeferred
	return err != nil && !waits
}

// errorType returns a value of error.type, of low cardinality. Errors of the outbox that only wrap
// another error are unwrapped.
func errorType(err error) string {
	var panicked *outbox.PanicError
	switch {
	case errors.Is(err, outbox.ErrUnroutable):
		return "unroutable"
	case errors.As(err, &panicked):
		return "panic"
	}
	var decided *outbox.OutcomeError
	for errors.As(err, &decided) && decided.Err != nil {
		err = decided.Err
	}
	return text(typeName(err))
}

// wrapped is the type of the errors of fmt.Errorf, which says nothing about the cause.
var wrapped = reflect.TypeOf(fmt.Errorf("%w", errors.ErrUnsupported))

// typeName is the result of an error's method ErrorType, or the name of the error's Go type, as in
// package semconv of newer versions of OpenTelemetry.
func typeName(err error) string {
	var named interface{ ErrorType() string }
	if errors.As(err, &named) && named.ErrorType() != "" {
		return named.ErrorType()
	}
	for reflect.TypeOf(err) == wrapped && errors.Unwrap(err) != nil {
		err = errors.Unwrap(err)
	}
	t := reflect.TypeOf(err)
	if t.PkgPath() == "" || t.Name() == "" { // a pointer, for example
		return t.String()
	}
	return t.PkgPath() + "." + t.Name()
}

// text returns a string that exporters accept, no longer than the error text that the outbox
// stores.
func text(s string) string {
	const limit = outbox.MaxErrorLength
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "")
}
