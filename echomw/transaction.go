package echomw

import (
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/outboxkit/outbox-go/outbox"
)

// DefaultMaxBuffer is the default of [TransactionConfig].MaxBuffer: 1 MiB.
const DefaultMaxBuffer = 1 << 20

// TransactionConfig configures the middleware. [Transaction] is its short form.
type TransactionConfig struct {
	// Skipper selects the requests that get no transaction. Defaults to none
	// besides those of ReadOnlyMethods.
	Skipper func(c echo.Context) bool
	// Transactor begins the transactions: an adapter. Required.
	Transactor outbox.Transactor
	// TxOptions are the options of each transaction. Nil: the database's defaults.
	TxOptions *sql.TxOptions
	// MaxBuffer is the number of bytes of a response body that are held back until
	// the commit. A longer body commits when it exceeds the limit and then
	// streams. Defaults to [DefaultMaxBuffer].
	MaxBuffer int
	// ReadBody is the number of bytes of the request body that are read into
	// memory before the transaction begins, so that a slow client holds no
	// transaction. Defaults to none. With ReadBody a client must not wait for a
	// response before it has sent that many bytes.
	ReadBody int64
	// ReadOnlyMethods get no transaction. Nil means GET, HEAD and OPTIONS; an
	// empty list means that every method gets one.
	ReadOnlyMethods []string
	// RollbackOn decides between COMMIT and ROLLBACK. It gets the status of the
	// response, 200 if there is none yet, and the error that the handler returned,
	// if any; the error handler has answered that by then. A panic that reaches
	// the middleware rolls back without a call. Defaults to a rollback for any
	// error and for a status of 400 or more.
	RollbackOn func(c echo.Context, status int, err error) bool
}

// Transaction returns a middleware that runs each request in a transaction of t
// and sends the response after the commit. Requests with GET, HEAD and OPTIONS
// get none. It panics when t is nil; [TransactionConfig.ToMiddleware] has options
// and returns the error.
//
// The request's context carries the transaction: the outbox's Writer and the
// adapter's TxFrom find it there. When the handler returns an error, the
// middleware calls the application's error handler, and the error then goes on to
// the middlewares outside. The transaction commits when the response has a status
// below 400 and the handler returned no error, did not panic, and the request's
// context has not ended. When the commit fails, nothing that was held back is
// sent, and the error handler gets a [*CommitError].
//
// The transaction ends before the handler returns when the body exceeds
// MaxBuffer, and when the handler calls Flush or Hijack. After that, writing to
// the outbox fails.
//
// Mounted twice for one transactor it acts once. With two transactors the inner
// transaction commits first.
func Transaction(t outbox.Transactor) echo.MiddlewareFunc {
	mw, err := TransactionConfig{Transactor: t}.ToMiddleware()
	if err != nil {
		panic(err)
	}
	return mw
}

// ToMiddleware returns the middleware for a copy of the config. Its error joins
// an [outbox.FieldError] for each field that is wrong.
func (config TransactionConfig) ToMiddleware() (echo.MiddlewareFunc, error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	if config.MaxBuffer == 0 {
		config.MaxBuffer = DefaultMaxBuffer
	}
	if config.ReadOnlyMethods == nil {
		config.ReadOnlyMethods = []string{http.MethodGet, http.MethodHead, http.MethodOptions}
	}
	config.ReadOnlyMethods = slices.Clone(config.ReadOnlyMethods)
	if config.RollbackOn == nil {
		config.RollbackOn = func(_ echo.Context, status int, err error) bool {
			return err != nil || status >= http.StatusBadRequest
		}
	}
	if config.TxOptions != nil {
		options := *config.TxOptions
		config.TxOptions = &options
	}
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			switch {
			case config.Skipper != nil && config.Skipper(c), hasTransactionOf(c, config.Transactor):
				return next(c)
			case slices.Contains(config.ReadOnlyMethods, c.Request().Method):
				c.SetRequest(withoutTx(c.Request()))
				return next(c)
			default:
				return serve(&config, c, next)
			}
		}
	}, nil
}

// withoutTx returns the request with a context that explains, to a handler that
// writes an event, why there is no transaction.
func withoutTx(r *http.Request) *http.Request {
	return r.WithContext(outbox.ContextWithoutTx(r.Context(), "echomw begins none for "+r.Method+
		", which is one of TransactionConfig.ReadOnlyMethods; use another method, take it out of ReadOnlyMethods, or write in outbox.InTx"))
}

func (config *TransactionConfig) validate() error {
	var problems []error
	add := func(field, problem string) {
		problems = append(problems, &outbox.FieldError{Field: "TransactionConfig." + field, Problem: problem})
	}
	if v := reflect.ValueOf(config.Transactor); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		add("Transactor", "is required; give an adapter, such as sqltx.New's")
	}
	if config.MaxBuffer < 0 {
		add("MaxBuffer", fmt.Sprintf("is %d; it must be positive, or zero for %d", config.MaxBuffer, DefaultMaxBuffer))
	}
	if config.ReadBody < 0 {
		add("ReadBody", fmt.Sprintf("is %d; it must be positive, or zero to leave the body to the handler", config.ReadBody))
	}
	for i, method := range config.ReadOnlyMethods {
		if method == "" || method != strings.ToUpper(method) {
			add(fmt.Sprintf("ReadOnlyMethods[%d]", i), fmt.Sprintf("is %q; methods are in upper case", method))
		}
	}
	return errors.Join(problems...)
}
