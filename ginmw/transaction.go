package ginmw

import (
	"context"
	"database/sql"
	"log/slog"
	"maps"
	"net/http"
	"reflect"

	"github.com/gin-gonic/gin"

	"github.com/outboxkit/outbox-go/httptx"
	"github.com/outboxkit/outbox-go/outbox"
)

// DefaultMaxBuffer is the default of [TransactionConfig].MaxBuffer: 1 MiB.
const DefaultMaxBuffer = httptx.DefaultMaxBuffer

// CommitError is on the context of a request whose transaction did not commit although the handler
// succeeded.
type CommitError = httptx.CommitError

// TransactionConfig configures the middleware. [Transaction] is the short form of
// [TransactionConfig.ToMiddleware].
type TransactionConfig struct {
	// Skipper selects the requests that get no transaction. By default only requests with one of
	// the ReadOnlyMethods get no transaction.
	Skipper func(c *gin.Context) bool
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
	// did. RollbackOn gets the status of the response, or 200 if there is no status yet, and the last
	// error that the handlers added to the context, or nil. A panic that reaches the middleware rolls
	// back without a call. Defaults to a rollback for any error, and as [httptx.Failed] says.
	RollbackOn func(c *gin.Context, status int, err error) bool
}

// Transaction returns a middleware that runs each request in a transaction of t and sends the
// response after the commit. Requests with GET, HEAD and OPTIONS get no transaction. Transaction
// panics when t is nil; [TransactionConfig.ToMiddleware] has options and returns the error.
//
// The request's context carries the transaction: the outbox's Writer and the adapter's TxFrom find
// the transaction there. The transaction commits when the response has a status below 400, the
// handlers added no error to the context and did not panic, and the request's context has not
// ended. Abort alone decides nothing.
//
// An error that no middleware inside has answered has the status 500, without a body; a success
// that was written along with the error is dropped. When the commit fails, nothing of the held-back
// response is sent, a [*CommitError] is added to the context, and the status is 500 too. Nothing of
// such an answer is written yet, so a middleware outside can write the answer.
//
// The transaction ends before the handler returns when the body exceeds
// MaxBuffer, and when the handler calls Flush or Hijack. After that, writing to
// the outbox fails.
//
// Mounted twice for the same transactor, the middleware acts once. With two transactors of the same
// pool, the inner transaction is a savepoint of the outer transaction. With two pools, the inner
// transaction commits first.
func Transaction(t outbox.Transactor) gin.HandlerFunc {
	mw, err := TransactionConfig{Transactor: t}.ToMiddleware()
	if err != nil {
		panic(err)
	}
	return mw
}

// ToMiddleware returns the middleware for a copy of the config. The error joins an
// [outbox.FieldError] for each field that is wrong.
func (config TransactionConfig) ToMiddleware() (gin.HandlerFunc, error) {
	exchanger, err := httptx.NewExchanger(httptx.TransactionConfig{
		Transactor: config.Transactor, TxOptions: config.TxOptions,
		MaxBuffer: config.MaxBuffer, ReadBody: config.ReadBody, ReadOnlyMethods: config.ReadOnlyMethods,
		Idempotency: config.Idempotency, Retries: config.Retries,
	})
	if err != nil {
		return nil, err
	}
	if config.RollbackOn == nil {
		config.RollbackOn = func(c *gin.Context, status int, err error) bool {
			return err != nil || httptx.Failed(status, c.Writer.Header())
		}
	}
	return func(c *gin.Context) {
		if config.Skipper != nil && config.Skipper(c) {
			return
		}
		request, wanted := exchanger.Wants(c.Request)
		if !wanted {
			c.Request = request
			return
		}
		serve(exchanger, &config, c)
	}, nil
}

// serve runs the rest of the chain in a transaction. The middlewares outside get
// their request and writer back.
func serve(exchanger *httptx.Exchanger, config *TransactionConfig, c *gin.Context) {
	request, outer := c.Request, c.Writer
	x := &exchange{c: c, config: config, outer: outer, errors: len(c.Errors)}
	x.writer = &x.first
	defer func() { c.Writer, c.Request = outer, request }()
	x.failed = exchanger.Serve(&x.Exchange, below{x}, request, x) // the error is on the context
	x.leave(c)
}

// exchange is an [httptx.Exchange] of gin.
type exchange struct {
	httptx.Exchange
	c      *gin.Context
	config *TransactionConfig
	outer  gin.ResponseWriter
	first  writer // of the first attempt
	writer *writer
	errors int           // on the context when the exchange began
	failed error         // that Serve returned
	start  reflect.Value // a copy of the context before the handlers ran
}

// Handle runs the rest of the chain.
func (x *exchange) Handle() error {
	if x.writer.held != nil { // a goroutine of the attempt before may have it
		x.writer = new(writer)
	}
	*x.writer = writer{ResponseWriter: x.outer, held: x.ResponseWriter(), initial: x.outer.Status(), status: x.outer.Status(), size: -1}
	if x.config.Retries > 0 {
		x.restart()
	}
	x.c.Writer, x.c.Request = x.writer, x.Request()
	x.c.Next()
	return x.failure()
}

// restart gives another attempt a context with the values that the context had before the first attempt,
// with the place in the chain, which gin hides. A goroutine that the first attempt left behind keeps the
// first context, with the lock in it.
func (x *exchange) restart() {
	own := reflect.ValueOf(x.c).Elem()
	if !x.start.IsValid() {
		x.start = reflect.New(own.Type()).Elem()
		x.start.Set(own)
	} else {
		again := reflect.New(own.Type())
		again.Elem().Set(x.start)
		x.c, _ = again.Interface().(*gin.Context)
	}
	x.c.Keys = maps.Clone(x.c.Keys)
}

// leave gives the middlewares outside the errors and the values that the last attempt has put on the context.
func (x *exchange) leave(c *gin.Context) {
	switch {
	case x.writer.held == nil: // no handler has run
		c.Abort()
	case x.writer.held != x.ResponseWriter(): // the last attempt has run no handler
		c.Errors = c.Errors[:x.errors]
		if x.failed != nil {
			_ = c.Error(x.failed)
		}
	case x.c != c:
		c.Errors = x.c.Errors
		for key, value := range x.c.Copy().Keys { // a goroutine may still set keys
			c.Set(key, value)
		}
	}
}

// lastError returns the last error that the handlers added, or nil.
func (x *exchange) lastError() error {
	if len(x.c.Errors) > x.errors {
		return x.c.Errors.Last().Err
	}
	return nil
}

// failure returns the error to answer. If the handlers added an error but wrote a success, and
// RollbackOn commits, the error is only for the log.
func (x *exchange) failure() error {
	x.writer.writeStatus()
	err, status := x.lastError(), x.Status()
	if err != nil && 0 < status && status < http.StatusBadRequest && !x.WillRollBack(status) {
		return nil
	}
	return err
}

// Answer adds the error of a commit to the context. Gin has no error handler: the exchange answers
// 500, and the middlewares outside can replace this answer.
func (x *exchange) Answer(err error) {
	if x.Status() == 0 {
		x.writer.now = false
	}
	if x.lastError() != err { //nolint:errorlint // the same error, not one like it.
		_ = x.c.Error(err)
	}
}

func (x *exchange) RollsBack(status int) bool { return x.config.RollbackOn(x.c, status, x.lastError()) }
func (x *exchange) Logger() *slog.Logger      { return slog.Default() }

// OnCommit runs fn after the request's transaction has committed and before the
// response is sent; see [httptx.OnCommit].
func OnCommit(c *gin.Context, fn func(ctx context.Context)) error {
	return httptx.OnCommit(c.Request.Context(), fn)
}
