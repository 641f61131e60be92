package httptx

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"

	"github.com/outboxkit/outbox-go/internal/nilness"
	"github.com/outboxkit/outbox-go/outbox"
)

// DefaultMaxBuffer is the default of [TransactionConfig].MaxBuffer: 1 MiB.
const DefaultMaxBuffer = 1 << 20

// TransactionConfig configures the middleware. [Transaction] is its short form.
type TransactionConfig struct {
	// Skipper selects the requests that get no transaction. By default only requests with one of
	// the ReadOnlyMethods get no transaction.
	Skipper func(r *http.Request) bool
	// Transactor begins the transactions: an adapter. Required.
	Transactor outbox.Transactor
	// TxOptions are the options of each transaction. Nil: the database's defaults.
	TxOptions *sql.TxOptions
	// MaxBuffer is the number of bytes of a response body that are held back until
	// the commit. A longer body commits when it exceeds the limit and then
	// streams. Defaults to [DefaultMaxBuffer].
	MaxBuffer int
	// ReadBody is the number of bytes of the request body that are read into memory before the
	// transaction begins, so that a slow client holds no transaction. Defaults to 0. With ReadBody,
	// a client must not wait for a response before it has sent that many bytes.
	ReadBody int64
	// ReadOnlyMethods get no transaction. Nil means GET, HEAD and OPTIONS; an empty list means that
	// every method gets a transaction.
	ReadOnlyMethods []string
	// Idempotency lets clients send requests again, by keys. Nil: keys are not looked at.
	Idempotency *Idempotency
	// Retries is how often a request is run again whose transaction the database refused because of
	// another transaction: see package txretry. The handler then runs from its beginning, with the
	// request's body from its beginning, and nothing of the refused attempt is sent; hooks and callbacks
	// of the attempt see a rollback. A handler that has read more than MaxBuffer bytes of the body, that
	// has streamed or taken over the connection, or that has called [txretry.Stop] is not run again. Of
	// nested middlewares the outermost one decides. Defaults to 0.
	Retries int
	// RollbackOn decides between COMMIT and ROLLBACK, unless [Rollback] or [Commit] did. RollbackOn
	// gets the status of the response, or 200 if there is no status yet, and the headers, with the
	// trailers that are set by then. A panic rolls back without a call. Defaults to [Failed].
	RollbackOn func(r *http.Request, status int, header http.Header) bool
	// ErrorHandler answers a request whose transaction could not begin or did not commit; the
	// latter is a [*CommitError]. If ErrorHandler writes nothing, the answer is an empty 500.
	// Defaults to a log line and a 500 without details.
	ErrorHandler func(w http.ResponseWriter, r *http.Request, err error)
	// Logger gets the errors that the client must not see. Defaults to [slog.Default].
	Logger *slog.Logger
}

// Transaction returns a middleware that runs each request in a transaction of t and sends the
// response after the commit. Requests with GET, HEAD and OPTIONS get no transaction. Transaction
// panics when t is nil; [TransactionConfig.ToMiddleware] has options and returns the error.
//
// The request's context carries the transaction: the outbox's Writer and the adapter's TxFrom find
// the transaction there. The transaction commits when the response has a status below 400, the
// handler did not panic, and the request's context has not ended. When the commit fails, nothing of
// the held-back response is sent, and the ErrorHandler gets a [*CommitError].
//
// A response with the status 200 commits, also when its body is an error, as in GraphQL: call
// [Rollback] where the error is known. [Failed] has the rule for gRPC.
//
// The transaction ends before the handler returns when the body exceeds
// MaxBuffer, and when the handler calls Flush or Hijack. After that, writing to
// the outbox fails.
//
// Mounted twice for the same transactor, the middleware acts once. With two transactors of the same
// pool, the inner transaction is a savepoint of the outer transaction. With two pools, the inner
// transaction commits first.
func Transaction(t outbox.Transactor) func(http.Handler) http.Handler {
	mw, err := TransactionConfig{Transactor: t}.ToMiddleware()
	if err != nil {
		panic(err)
	}
	return mw
}

// ToMiddleware returns the middleware for a copy of the config. The error joins an
// [outbox.FieldError] for each field that is wrong.
func (config TransactionConfig) ToMiddleware() (func(http.Handler) http.Handler, error) {
	exchanger, err := NewExchanger(config)
	if err != nil {
		return nil, err
	}
	if config.Logger == nil {
		config.Logger = slog.Default()
	}
	if config.RollbackOn == nil {
		config.RollbackOn = func(_ *http.Request, status int, header http.Header) bool { return Failed(status, header) }
	}
	if config.ErrorHandler == nil {
		config.ErrorHandler = config.answer
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if config.Skipper != nil && config.Skipper(r) {
				next.ServeHTTP(w, r)
				return
			}
			request, wanted := exchanger.Wants(r)
			if !wanted {
				next.ServeHTTP(w, request)
				return
			}
			x := &exchange{config: &config, next: next}
			_ = exchanger.Serve(&x.Exchange, w, request, x) // the ErrorHandler has had the error
		})
	}, nil
}

// exchange is an [Exchange] of net/http.
type exchange struct {
	Exchange
	config *TransactionConfig
	next   http.Handler
}

func (x *exchange) Handle() error {
	x.next.ServeHTTP(x.ResponseWriter(), x.Request())
	return nil
}

func (x *exchange) Answer(err error) { x.config.ErrorHandler(x.ResponseWriter(), x.Request(), err) }

func (x *exchange) RollsBack(status int) bool {
	return x.config.RollbackOn(x.before, status, x.ResponseWriter().Header())
}
func (x *exchange) Logger() *slog.Logger { return x.config.Logger }

// answer is the default ErrorHandler. A client that has gone is not an error of the server.
func (config *TransactionConfig) answer(w http.ResponseWriter, r *http.Request, err error) {
	level := slog.LevelError
	if errors.Is(err, context.Canceled) {
		level = slog.LevelInfo
	}
	config.Logger.Log(r.Context(), level, "a request failed", "method", r.Method, "path", r.URL.Path, "error", err)
	http.Error(w, http.StatusText(http.StatusInternalServerError), http.StatusInternalServerError)
}

func (config *TransactionConfig) validate() error {
	var problems []error
	add := func(field, problem string) {
		problems = append(problems, &outbox.FieldError{Field: "TransactionConfig." + field, Problem: problem})
	}
	if nilness.IsNil(config.Transactor) {
		add("Transactor", "is required; give an adapter, such as sqltx.New's")
	}
	if config.MaxBuffer < 0 {
		add("MaxBuffer", fmt.Sprintf("is %d; it must be positive, or zero for %d", config.MaxBuffer, DefaultMaxBuffer))
	}
	if config.Retries < 0 {
		add("Retries", fmt.Sprintf("is %d; it must be positive, or zero to run each request once", config.Retries))
	}
	if config.ReadBody < 0 {
		add("ReadBody", fmt.Sprintf("is %d; it must be positive, or zero to leave the body to the handler", config.ReadBody))
	}
	if _, err := config.Idempotency.withDefaults(); err != nil {
		problems = append(problems, err)
	}
	for i, method := range config.ReadOnlyMethods {
		if method == "" || method != strings.ToUpper(method) {
			add(fmt.Sprintf("ReadOnlyMethods[%d]", i), fmt.Sprintf("is %q; methods are in upper case", method))
		}
	}
	return errors.Join(problems...)
}
