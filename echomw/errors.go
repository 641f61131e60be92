package echomw

import (
	"errors"
	"net/http"

	"github.com/labstack/echo/v4"
)

// CommitError is what the application's error handler gets when a request's
// transaction did not commit although its handler was content: nothing of the
// response was sent. When errors.Is(err, [outbox.ErrOutcomeUnknown]) holds, it
// may have committed all the same, and a client that tries again should do so
// with a key that makes the request idempotent. That holds also when it is not
// the middleware that ended the transaction, but the handler.
type CommitError struct{ Err error }

// Error tells the cause.
func (e *CommitError) Error() string {
	return "echomw: committing the request's transaction: " + e.Err.Error()
}

// Unwrap is the cause: the database's error, or the context's when the client
// was gone.
func (e *CommitError) Unwrap() error { return e.Err }

// unansweredError asks the application's error handler once more about an error
// that it wrote no answer to, or about an error's answer that was not written:
// then err is nil.
type unansweredError struct{ err error }

func (e *unansweredError) Error() string {
	text := "echomw: the request was rolled back, and its error not answered"
	if e.err != nil {
		text += ": " + e.err.Error()
	}
	return text
}

func (e *unansweredError) Unwrap() error { return e.err }

// statusOf is the status that an error will be answered with, as far as one can
// tell without the application's error handler.
func statusOf(err error) int {
	var httpError *echo.HTTPError
	if errors.As(err, &httpError) {
		var inner *echo.HTTPError
		if httpError.Internal != nil && errors.As(httpError.Internal, &inner) {
			return inner.Code
		}
		return httpError.Code
	}
	return http.StatusInternalServerError
}
