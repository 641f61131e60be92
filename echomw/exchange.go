package echomw

import (
	"context"
	"fmt"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/outboxkit/outbox-go/outbox"
)

// exchange is one request and its response, which is held back until the
// request's transaction has ended.
type exchange struct {
	config *TransactionConfig
	outer  *exchange // of another transactor, around this one
	c      echo.Context
	unit   unit
	held   heldResponse
	err    error // that the handler returned
	cancel context.CancelCauseFunc

	// What the middlewares outside find again.
	request *http.Request
	res     *echo.Response
	before  echo.Response // the content of res before the handler ran
}

type exchangeKey struct{}

// exchangeOf returns the innermost exchange of the request, or nil.
func exchangeOf(c echo.Context) *exchange {
	x, _ := c.Request().Context().Value(exchangeKey{}).(*exchange)
	return x
}

// hasTransactionOf reports whether the middleware has begun a transaction of t
// for the request.
func hasTransactionOf(c echo.Context, t outbox.Transactor) bool {
	for x := exchangeOf(c); x != nil; x = x.outer {
		if x.config.Transactor == t {
			return true
		}
	}
	return false
}

// serve runs the rest of the chain in a transaction.
func serve(config *TransactionConfig, c echo.Context, next echo.HandlerFunc) error {
	request, res := c.Request(), c.Response()
	x := &exchange{config: config, outer: exchangeOf(c), c: c, request: request, res: res, before: *res}
	body := readAhead(request, config.ReadBody)
	ctx, cancel := context.WithCancelCause(context.WithValue(request.Context(), exchangeKey{}, x))
	defer cancel(nil)
	ctx, tx, err := config.Transactor.Begin(ctx, config.TxOptions)
	if err != nil {
		return fmt.Errorf("echomw: beginning the request's transaction: %w", err)
	}
	x.cancel = cancel
	x.unit = unit{tx: tx, ctx: request.Context(), log: c.Logger()}
	x.held = heldResponse{ResponseWriter: res.Writer, maxBuffer: config.MaxBuffer, end: x.end}
	if header := res.Header(); len(header) > 0 {
		x.held.initial = header.Clone()
	}
	defer x.restore()
	defer x.unit.rollback() // for a panic: after finish the transaction has ended

	res.Writer = &x.held
	inner := request.WithContext(ctx)
	inner.Body = body
	c.SetRequest(inner)
	return x.finish(next(c))
}

// finish has an error of the handler answered, ends the transaction as the
// status and the error say, and sends the response.
func (x *exchange) finish(err error) error {
	x.takeBack()
	if err != nil && x.held.holding() {
		x.err = err
		if 0 < x.held.status && x.held.status < http.StatusBadRequest {
			x.discard() // the success turned out to be none
		}
		x.answer(err)
	}
	sending := x.held.release(http.StatusOK)
	if failed := x.held.err; failed != nil {
		x.discard()
		x.held.sent, x.held.err = true, nil
		x.c.SetRequest(x.request) // its context is alive and carries no transaction
		x.answer(failed)
		return failed
	}
	if sending != nil && err == nil {
		err = fmt.Errorf("echomw: sending the response: %w", sending)
	}
	return err
}

// end ends the transaction of a response with this status. When the commit
// fails it cancels the request's context, so that a handler that streams until
// its client leaves stops.
func (x *exchange) end(status int) error {
	if x.config.RollbackOn(x.c, status, x.err) {
		x.unit.rollback()
		return nil
	}
	err := x.unit.commit()
	if err != nil {
		x.cancel(err)
	}
	return err
}

// answer calls the application's error handler. When that writes nothing the
// answer is an empty 500, because net/http would send a 200.
func (x *exchange) answer(err error) {
	x.c.Error(err)
	if !x.res.Committed {
		x.res.WriteHeader(http.StatusInternalServerError)
	}
}

// takeBack makes the response the one that the middleware has prepared: others
// such as echo.WrapMiddleware leave another in its place, and Timeout answers
// without Echo's knowledge.
func (x *exchange) takeBack() {
	x.c.SetResponse(x.res)
	x.res.Writer = &x.held
	if x.held.status != 0 {
		x.res.Committed, x.res.Status = true, x.held.status
	}
}

// discard makes the response what it was before the handler ran, so that another
// can be written.
func (x *exchange) discard() {
	x.held.drop()
	*x.res = x.before
	x.res.Writer = &x.held
}

// restore gives the middlewares outside their request and response back, and
// refuses what a goroutine that outlives the handler may write.
func (x *exchange) restore() {
	if !x.held.sent { // the handler panicked
		x.discard()
	}
	x.held.err = errAnswered
	x.res.Writer = x.held.ResponseWriter
	x.c.SetResponse(x.res)
	x.c.SetRequest(x.request)
}

// leave ends the request's transactions, for a handler that works outside of
// them.
func leave(c echo.Context) error {
	for x := exchangeOf(c); x != nil; x = x.outer {
		if err := x.held.release(http.StatusOK); err != nil {
			return err
		}
	}
	return nil
}
