package echomw

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/labstack/echo/v4"

	"github.com/outboxkit/outbox-go/outbox"
)

// exchange is one request whose response is held back until its transaction has
// ended.
type exchange struct {
	config *TransactionConfig
	outer  *exchange    // around this one, of another transactor
	c      echo.Context // as the middleware got it
	own    heldContext  // what handlers get instead, or inside of it
	unit   unit
	gate   gate

	// What was there before the handler ran, to be restored.
	request *http.Request
	res     *echo.Response
	header  http.Header
	before  responseState

	cancel   context.CancelCauseFunc
	reported error // what c.Error was given first
	answered bool  // the error handler has answered it, or is about to
	doomed   bool  // a success was taken back for an error's answer
}

// responseState is what Echo knows of a response beside its writer.
type responseState struct {
	committed bool
	status    int
	size      int64
}

type exchangeKey struct{}

// exchangeOf is the innermost exchange of the request, ended or not, or nil.
func exchangeOf(c echo.Context) *exchange {
	x, _ := c.Request().Context().Value(exchangeKey{}).(*exchange)
	return x
}

func inTransactionOf(c echo.Context, t outbox.Transactor) bool {
	for x := exchangeOf(c); x != nil; x = x.outer {
		if x.config.Transactor == t {
			return true
		}
	}
	return false
}

// serve runs the rest of the chain in a transaction.
func serve(config *TransactionConfig, c echo.Context, next echo.HandlerFunc) error {
	x := &exchange{config: config, outer: exchangeOf(c), c: c, request: c.Request(), res: c.Response()}
	body := readAhead(x.request, config.ReadBody)
	ctx, cancel := context.WithCancelCause(context.WithValue(x.request.Context(), exchangeKey{}, x))
	ctx, tx, err := config.Transactor.Begin(ctx, config.TxOptions)
	if err != nil {
		cancel(nil)
		return fmt.Errorf("echomw: beginning the request's transaction: %w", err)
	}
	x.cancel = cancel
	x.unit = unit{tx: tx, ctx: x.request.Context(), log: c.Logger()}
	x.before = responseState{committed: x.res.Committed, status: x.res.Status, size: x.res.Size}
	if header := x.res.Header(); len(header) > 0 {
		x.header = header.Clone()
	}
	x.gate = gate{ResponseWriter: x.res.Writer, x: x}
	x.own = heldContext{Context: c, x: x}

	x.res.Writer = &x.gate
	request := x.request.WithContext(ctx)
	request.Body = body
	c.SetRequest(request)
	inner, uninstall := x.own.install(c)
	returned := false
	defer func() {
		if !returned { // something panicked or ended the goroutine
			x.unit.rollback()
			if x.gate.state != passing {
				x.discard()
			}
		}
		uninstall()
		x.restore()
		cancel(nil)
	}()
	err = x.finish(next(inner))
	returned = true
	return err
}

// finish ends the transaction, if that is still to be done, after the handler
// has returned err, and lets the response go or takes it back.
func (x *exchange) finish(err error) error {
	switch x.gate.state {
	case passing:
		return err
	case failed:
		x.discard()
		var unanswered *unansweredError
		if errors.As(x.gate.err, &unanswered) {
			return x.refuse(unanswered)
		}
		return x.gate.err
	case holding:
	}
	cause := err
	if cause == nil {
		cause = x.reported
	}
	status := x.gate.statusOr(http.StatusOK)
	answered := x.reported != nil || status >= http.StatusBadRequest
	if err != nil && !answered {
		status = statusOf(err)
	}
	if x.doomed || x.config.RollbackOn(x.c, status, cause) {
		x.unit.rollback()
		if x.unanswered(status) {
			return x.refuse(&unansweredError{x.reported})
		}
		if err != nil && !answered && x.held() {
			x.discard() // a success that turned out to be none
			return err
		}
	} else if failure := x.unit.commit(); failure != nil {
		x.discard()
		return failure
	}
	if failure := x.gate.release(); failure != nil && err == nil {
		err = fmt.Errorf("echomw: sending the response: %w", failure)
	}
	return err
}

// endEarly ends the transaction for a response that cannot be held back any
// longer. The response may be nothing but its status yet.
func (x *exchange) endEarly(status int) error {
	if x.doomed || x.config.RollbackOn(x.c, status, x.reported) {
		x.unit.rollback()
		if !x.unanswered(status) {
			return nil
		}
		err := &unansweredError{x.reported}
		x.cancel(err)
		return err
	}
	err := x.unit.commit()
	if err != nil {
		// Whoever streams for as long as the client is there is told to stop.
		x.cancel(err)
	}
	return err
}

// unanswered says whether the response, with this status, would tell nothing of
// an error that c.Error was given, for the error handler wrote nothing, or of one
// whose answer could not be written.
func (x *exchange) unanswered(status int) bool {
	return (x.reported != nil || x.doomed) && !x.answered && status < http.StatusBadRequest
}

// refuse answers in the place of an error handler that did not, after the
// rollback: net/http would make a success of it.
func (x *exchange) refuse(err *unansweredError) error {
	x.discard()
	x.gate.state, x.gate.deaf = passing, false
	x.res.Writer = &x.gate
	x.c.Error(err)
	if x.c.Response().Committed {
		return nil
	}
	return x.c.NoContent(http.StatusInternalServerError)
}

// report has the error handler answer an error that somebody inside of the
// middleware does not return, as Logger and Recover do, and takes note of it.
func (x *exchange) report(err error, handle func(error)) {
	switch x.gate.state {
	case passing:
		handle(err) // the response is on its way: it is as without the middleware
		return
	case failed:
		return // the failed commit will be answered
	case holding:
	}
	if x.reported == nil {
		x.reported = err
		x.takeBack(statusOf(err), err)
	}
	if !x.answered && !x.held() {
		x.answered = true
		defer func() { x.answered = x.gate.state != holding || x.held() }()
	}
	handle(err)
	x.deafen()
}

// takeBack makes way for the answer of an error with this status, when a success
// has been written that must not be sent now. It is in the buffer, or in that of
// a writer in between. After the answer, deafen is to be called.
func (x *exchange) takeBack(status int, err error) {
	if res := x.c.Response(); res.Committed && res.Status < http.StatusBadRequest && x.config.RollbackOn(x.c, status, err) {
		x.doomed = true
		x.discard()
		x.res.Writer = &x.gate
	}
}

// deafen is for what writers in between still have to say of a success that was
// taken back: once there is another answer, it is not heard.
func (x *exchange) deafen() {
	if x.doomed && x.gate.state == holding && x.held() {
		x.gate.deaf = true
	}
}

// held says whether any of a response waits.
func (x *exchange) held() bool { return x.gate.status != 0 || x.c.Response().Committed }

// discard forgets what was held back and makes the response what it was before
// the handler ran, so that another can be written.
func (x *exchange) discard() {
	x.gate.drop()
	header := x.gate.Header()
	clear(header)
	for name, values := range x.header {
		header[name] = slices.Clone(values)
	}
	x.res.Committed, x.res.Status, x.res.Size = x.before.committed, x.before.status, x.before.size
	x.c.SetResponse(x.res) // echo.WrapMiddleware puts another in its place
}

// restore takes the middleware out of the way of those around it.
func (x *exchange) restore() {
	x.gate.close()
	x.res.Writer = x.gate.ResponseWriter
	x.c.SetResponse(x.res)
	x.c.SetRequest(x.request)
}

// leave ends the transactions of a request that wants none around what it does.
func leave(c echo.Context) error {
	for x := exchangeOf(c); x != nil; x = x.outer {
		if err := x.gate.open(); err != nil {
			return err
		}
	}
	return nil
}
