package fibermw

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"io"
	"log/slog"
	"net/http"

	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"

	"github.com/outboxkit/outbox-go/httptx"
	"github.com/outboxkit/outbox-go/outbox"
)

// CommitError is the error that the app's ErrorHandler gets when the transaction of a request did not
// commit although the handler succeeded.
type CommitError = httptx.CommitError

// TransactionConfig configures the middleware. [Transaction] is the short form of
// [TransactionConfig.ToMiddleware].
type TransactionConfig struct {
	// Skipper selects the requests that get no transaction. By default only requests with one of
	// the ReadOnlyMethods get no transaction.
	Skipper func(c fiber.Ctx) bool
	// Transactor begins the transactions: an adapter. Required.
	Transactor outbox.Transactor
	// TxOptions are the options of each transaction. Nil: the database's defaults.
	TxOptions *sql.TxOptions
	// ReadOnlyMethods get no transaction. Nil means GET, HEAD and OPTIONS; an empty list means that
	// every method gets a transaction.
	ReadOnlyMethods []string
	// Idempotency lets clients send requests again, by keys. The functions in Idempotency get a copy of
	// the request, whose context is c.Context(). The handler's own answer is stored: an answer that the
	// ErrorHandler writes, a stream, a file of SendFile and a body of more than
	// [httptx.DefaultMaxBuffer] bytes are not stored. Nil: keys are not looked at.
	Idempotency *httptx.Idempotency
	// RollbackOn decides between COMMIT and ROLLBACK, unless [httptx.Rollback] or [httptx.Commit]
	// did. RollbackOn gets the error that the handlers returned, or nil. The status is that of the
	// response; for an error, the status is the Code of the [*fiber.Error], or 500. A panic, and a
	// handler that has not returned because of a timeout, roll back without a call. Defaults to a
	// rollback for any error, and as [httptx.Failed] says.
	RollbackOn func(c fiber.Ctx, status int, err error) bool
}

// Transaction returns a middleware that runs each request in a transaction of t and sends the
// response after the commit. Requests with GET, HEAD and OPTIONS get no transaction. Transaction
// panics when t is nil; [TransactionConfig.ToMiddleware] has options and returns the error.
//
// The context c.Context() carries the transaction: the outbox's Writer and the adapter's TxFrom find
// the transaction there, but not in c itself. The transaction commits when the handlers returned no
// error and did not panic, the response has a status below 400, and c.Context() has not ended.
// Fasthttp does not end a context when the client has gone.
//
// An error rolls back before the app's ErrorHandler answers; a success that was written along with
// the error is dropped, headers included. When the commit fails, the whole response is dropped, and
// the ErrorHandler gets a [*CommitError]. The default ErrorHandler of Fiber sends the text of an
// error to the client: set another one.
//
// Fasthttp runs the function of SendStreamWriter in another goroutine, and sends the stream after the
// commit. Write to the outbox in the handler: in the stream, writing fails with
// [outbox.ErrNoTransaction] after the commit.
//
// Mounted twice for the same transactor, the middleware acts once. With two transactors of the same
// pool, the inner transaction is a savepoint of the outer transaction. With two pools, the inner
// transaction commits first.
func Transaction(t outbox.Transactor) fiber.Handler {
	mw, err := TransactionConfig{Transactor: t}.ToMiddleware()
	if err != nil {
		panic(err)
	}
	return mw
}

// ToMiddleware returns the middleware for a copy of the config. The error joins an
// [outbox.FieldError] for each field that is wrong.
func (config TransactionConfig) ToMiddleware() (fiber.Handler, error) {
	exchanger, err := httptx.NewExchanger(httptx.TransactionConfig{
		Transactor: config.Transactor, TxOptions: config.TxOptions,
		ReadOnlyMethods: config.ReadOnlyMethods, Idempotency: config.Idempotency,
	})
	if err != nil {
		return nil, err
	}
	if config.RollbackOn == nil {
		config.RollbackOn = func(c fiber.Ctx, status int, err error) bool {
			return err != nil || httptx.Failed(status, http.Header{"Grpc-Status": {c.GetRespHeader("Grpc-Status")}})
		}
	}
	return func(c fiber.Ctx) error {
		if config.Skipper != nil && config.Skipper(c) {
			return c.Next()
		}
		request := (&http.Request{Method: c.Method()}).WithContext(c.Context())
		request, wanted := exchanger.Wants(request)
		if !wanted {
			outside := c.Context()
			c.SetContext(request.Context())
			defer func() {
				if !c.IsAbandoned() {
					c.SetContext(outside)
				}
			}()
			return c.Next()
		}
		return serve(exchanger, &config, c, request)
	}, nil
}

// serve runs the rest of the chain in a transaction. The middlewares outside get their context back.
func serve(exchanger *httptx.Exchanger, config *TransactionConfig, c fiber.Ctx, request *http.Request) error {
	x := &exchange{c: c, config: config, outside: c.Context()}
	c.Response().Header.CopyTo(&x.before)
	x.writer.c, x.writer.header = c, http.Header{}
	if config.Idempotency != nil {
		request = withForm(requestOf(c), c)
		x.writer.header = headerOf(&x.before)
	}
	x.body = request.Body
	defer x.leave()
	err := exchanger.Serve(&x.Exchange, &x.writer, request, x)
	x.served = true
	return err
}

// exchange is an [httptx.Exchange] of Fiber. The handler writes to Fiber's response, which fasthttp
// sends later. The exchange gets the status, and a copy of the response if an answer is stored.
type exchange struct {
	httptx.Exchange
	c       fiber.Ctx
	config  *TransactionConfig
	outside context.Context         //nolint:containedctx // the middlewares outside get the context back.
	before  fasthttp.ResponseHeader // of the middlewares outside
	body    io.ReadCloser           // before a key has read it
	writer  writer
	err     error // that the handlers returned
	served  bool
}

// Handle runs the rest of the chain.
func (x *exchange) Handle() error {
	c := x.c
	if body := x.Request().Body; c.Request().IsBodyStream() && body != x.body {
		read, _ := io.ReadAll(body) // from memory: a key has read the stream
		c.Request().SetBody(read)
	}
	x.writer.handled = true
	c.SetContext(x.Request().Context())
	if x.err = c.Next(); c.IsAbandoned() { // the middleware timeout has returned, and the handler has not
		return cmp.Or(x.err, errAbandoned)
	}
	x.write()
	return x.err
}

var errAbandoned = errors.New("fibermw: the handler has not returned in time")

// write gives the exchange the response, as far as the exchange needs to know it. The exchange stores the
// answer with the key if the answer is complete, which a stream and an error are not: they are
// flushed.
func (x *exchange) write() {
	response, w := x.c.Response(), x.ResponseWriter()
	status, complete := response.StatusCode(), x.err == nil && !response.IsBodyStream()
	if x.err != nil {
		if status < http.StatusBadRequest && x.written() {
			x.reset()
		}
		status = codeOf(x.err)
	}
	if status < 100 || status > 999 { // which the exchange refuses
		status = http.StatusInternalServerError
	}
	x.writer.passed = len(response.Header.Peek(httptx.ReplayedHeader)) > 0
	if x.config.Idempotency != nil {
		clear(x.writer.header)
		for name, values := range headerOf(&response.Header) {
			x.writer.header[name] = values
		}
	}
	w.WriteHeader(status)
	switch {
	case !complete:
		_ = http.NewResponseController(w).Flush() // Serve has the error
	case x.config.Idempotency != nil:
		_, _ = w.Write(response.Body())
	}
}

// written reports whether the handler wrote a response, and not headers alone.
func (x *exchange) written() bool {
	response := x.c.Response()
	return response.StatusCode() != x.before.StatusCode() || response.IsBodyStream() || len(response.Body()) > 0
}

// codeOf is the status that Fiber answers an error with.
func codeOf(err error) int {
	var known *fiber.Error
	if errors.As(err, &known) {
		return known.Code
	}
	return http.StatusInternalServerError
}

// reset undoes the handler's response and an upgrade of the connection.
func (x *exchange) reset() {
	x.c.Response().ResetBody()
	x.before.CopyTo(&x.c.Response().Header)
	x.c.Response().SetStatusCode(http.StatusInternalServerError) // for an ErrorHandler that writes nothing
	x.c.RequestCtx().Hijack(nil)
}

// leave gives the middlewares outside their context back, and the response after a panic. A handler that
// goes on after a timeout has c: leave does not touch it then.
func (x *exchange) leave() {
	if x.c.IsAbandoned() {
		return
	}
	if !x.served {
		x.reset()
	}
	x.c.SetContext(x.outside)
}

// Answer drops the response of a transaction that did not commit. The ErrorHandler answers.
func (x *exchange) Answer(error) {
	if x.writer.handled = true; !x.c.IsAbandoned() {
		x.reset()
	}
}

func (x *exchange) RollsBack(status int) bool {
	return x.c.IsAbandoned() || x.config.RollbackOn(x.c, status, x.err)
}
func (x *exchange) Logger() *slog.Logger { return slog.Default() }

// OnCommit runs fn after the request's transaction has committed and before the
// response is sent; see [httptx.OnCommit].
func OnCommit(c fiber.Ctx, fn func(ctx context.Context)) error {
	return httptx.OnCommit(c.Context(), fn)
}
