package outboxotel

import (
	"errors"
	"strings"

	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/outboxkit/outbox-go/outbox"
)

// failure is the type and the text of a delivery's error.
func failure(res outbox.Result, err error) (typ, description string) {
	if err == nil {
		reason, _ := res.Dead()
		return "dead", text(reason)
	}
	return errorType(err), text(err.Error())
}

// errorType is a value of error.type, of low cardinality. Errors of the outbox
// that only wrap another error are unwrapped.
func errorType(err error) string {
	var panicked *outbox.PanicError
	switch {
	case errors.Is(err, outbox.ErrUnroutable):
		return "unroutable"
	case errors.As(err, &panicked):
		return "panic"
	}
	var retry *outbox.RetryError
	if errors.As(err, &retry) && retry.Err != nil {
		err = retry.Err
	}
	var unrecoverable *outbox.UnrecoverableError
	if errors.As(err, &unrecoverable) && unrecoverable.Err != nil {
		err = unrecoverable.Err
	}
	return text(semconv.ErrorType(err).Value.AsString())
}

// text is a string that exporters accept, no longer than the error text that the
// outbox stores.
func text(s string) string {
	const limit = outbox.MaxErrorLength
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "")
}
