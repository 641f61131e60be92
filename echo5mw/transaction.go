package echo5mw

import (
	"context"
	"database/sql"
	"log/slog"

	"github.com/labstack/echo/v5"

	"github.com/outboxkit/outbox-go/httptx"
	"github.com/outboxkit/outbox-go/outbox"
)

// DefaultMaxBuffer is the default of [TransactionConfig].MaxBuffer: 1 MiB.
const DefaultMaxBuffer = httptx.DefaultMaxBuffer

// CommitError is the error that the application's error handler gets when the transaction of a
// request did not commit although the handler succeeded.
type CommitError = httptx.CommitError

// TransactionConfig configures the middleware. [Transaction] is the short form of
// [TransactionConfig.ToMiddleware].
type TransactionConfig struct {
	// Skipper selects the requests that get no transaction. By default only requests with one of
	// the ReadOnlyMethods get no transaction.
	Skipper func(c *echo.Context) bool
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
	Idempotency *httptx.Idempotency
	// Retries is how often a request is run again whose transaction the database refused because of
	// another transaction: see [httptx.TransactionConfig]. Defaults to 0.
	Retries int
	// RollbackOn decides between COMMIT and ROLLBACK, unless [httptx.Rollback] or [httptx.Commit]
	// did. RollbackOn gets the status of the response, or 200 if there is no status yet, and the error
	// that the handler returned, if any; the error handler has already answered this error. A panic
	// that reaches the middleware rolls back without a call. Defaults to a rollback for any error, and
	// as [httptx.Failed] says.
	RollbackOn func(c *echo.Context, status int, err error) bool
}

// Transaction returns a middleware that runs each request in a transaction of t and sends the
// response after the commit. Requests with GET, HEAD and OPTIONS get no transaction. Transaction
// panics when t is nil; [TransactionConfig.ToMiddleware] has options and returns the error.
//
// The request's context carries the transaction: the outbox's Writer and the adapter's TxFrom find
// the transaction there. When the handler returns an error, the middleware calls the application's
// error handler, and the error then goes on to the middlewares outside. The transaction commits
// when the response has a status below 400, the handler returned no error and did not panic, and
// the request's context has not ended. When the commit fails, nothing of the held-back response is
// sent, and the error handler gets a [*CommitError].
//
// The transaction ends before the handler returns when the body exceeds
// MaxBuffer, and when the handler calls Flush or Hijack. After that, writing to
// the outbox fails.
//
// Mounted twice for the same transactor, the middleware acts once. With two transactors of the same
// pool, the inner transaction is a savepoint of the outer transaction. With two pools, the inner
// transaction commits first.
func Transaction(t outbox.Transactor) echo.MiddlewareFunc {
	mw, err := TransactionConfig{Transactor: t}.ToMiddleware()
	if err != nil {
		panic(err)
	}
	return mw
}

// ToMiddleware returns the middleware for a copy of the config. The error joins an
// [outbox.FieldError] for each field that is wrong.
func (config TransactionConfig) ToMiddleware() (echo.MiddlewareFunc, error) {
	exchanger, err := httptx.NewExchanger(httptx.TransactionConfig{
		Transactor: config.Transactor, TxOptions: config.TxOptions,
		MaxBuffer: config.MaxBuffer, ReadBody: config.ReadBody, ReadOnlyMethods: config.ReadOnlyMethods,
		Idempotency: config.Idempotency, Retries: config.Retries,
	})
	if err != nil {
		return nil, err
	}
	if config.RollbackOn == nil {
		config.RollbackOn = func(c *echo.Context, status int, err error) bool {
			return err != nil || httptx.Failed(status, c.Response().Header())
		}
	}
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			if config.Skipper != nil && config.Skipper(c) {
				return next(c)
			}
			request, wanted := exchanger.Wants(c.Request())
			if !wanted {
				c.SetRequest(request)
				return next(c)
			}
			return serve(exchanger, config.RollbackOn, c, next)
		}
	}, nil
}

// serve runs the rest of the chain in a transaction. The middlewares outside get
// their request and response back.
func serve(exchanger *httptx.Exchanger, rollbackOn func(*echo.Context, int, error) bool, c *echo.Context, next echo.HandlerFunc) error {
	request, response := c.Request(), c.Response()
	x := &exchange{c: c, rollbackOn: rollbackOn, next: next}
	defer func() {
		c.SetResponse(response)
		c.SetRequest(request)
	}()
	return exchanger.Serve(&x.Exchange, response, request, x)
}

// exchange is an [httptx.Exchange] of Echo.
type exchange struct {
	httptx.Exchange
	c          *echo.Context
	rollbackOn func(c *echo.Context, status int, err error) bool
	next       echo.HandlerFunc
	first      echo.Response // of the first attempt
	ran        bool
	err        error // that the handler returned
}

func (x *exchange) Handle() error {
	x.c.SetRequest(x.Request())
	response := &x.first
	if x.ran { // a goroutine of the attempt before may have the response
		response = new(echo.Response)
	}
	x.ran = true
	*response = *echo.NewResponse(x.ResponseWriter(), x.c.Logger())
	x.c.SetResponse(response)
	x.err = x.next(x.c)
	return x.err
}

// Answer calls the application's error handler. The error handler finds the response committed when
// a failure was written, even if it was not written through Echo's response, as by Timeout.
func (x *exchange) Answer(err error) {
	response := echo.NewResponse(x.ResponseWriter(), x.c.Logger())
	if status := x.Status(); status != 0 {
		response.Committed, response.Status = true, status
	}
	x.c.SetResponse(response)
	x.c.SetRequest(x.Request())
	x.c.Echo().HTTPErrorHandler(x.c, err)
}

func (x *exchange) RollsBack(status int) bool { return x.rollbackOn(x.c, status, x.err) }
func (x *exchange) Logger() *slog.Logger      { return x.c.Logger() }

// OnCommit runs fn after the request's transaction has committed and before the
// response is sent; see [httptx.OnCommit].
func OnCommit(c *echo.Context, fn func(ctx context.Context)) error {
	return httptx.OnCommit(c.Request().Context(), fn)
}
