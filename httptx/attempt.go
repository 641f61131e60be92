package httptx

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/txretry"
)

// attempt is a run of a request's handler in a transaction, and the response of the run. Goroutines
// that outlive the handler keep to their attempt.
type attempt struct {
	x         *Exchange
	outer     *attempt // of another transactor, around this one
	unit      unit
	held      heldResponse
	cancel    context.CancelCauseFunc
	request   *http.Request // with the transaction, until a commit has failed
	keyed     *keyed        // nil: the request has no key
	finishing bool          // the response is complete
	again     bool          // the request is to be run again
	route     *routed       // nil: the request runs once
}

type attemptKey struct{}

// attemptOf returns the innermost attempt of the request, or nil.
func attemptOf(ctx context.Context) *attempt {
	a, _ := ctx.Value(attemptKey{}).(*attempt)
	return a
}

// run is an attempt. The error of an attempt that is to be followed by another is a conflict.
func (x *Exchange) run(ctx context.Context) error {
	if x.again {
		x.start(new(attempt))
	}
	a := x.attempt
	answered, err := a.begin(ctx)
	if err != nil {
		if conflict := txretry.Conflict(ctx, err); conflict != nil && a.may(ctx) {
			a.again = true
			return conflict
		}
		return x.refuse(fmt.Errorf("httptx: beginning the request's transaction: %w", err))
	}
	if answered {
		return nil
	}
	defer a.close()
	err = x.framework.Handle()
	if a.held.holding() && a.may(ctx) && x.WillRollBack(a.expected(err)) {
		if conflict := txretry.Conflict(a.request.Context(), err); conflict != nil {
			a.again = true
			return conflict
		}
	}
	return a.finish(ctx, err)
}

// may reports whether the request may be run again.
func (a *attempt) may(ctx context.Context) bool {
	return a.x.config.Retries > 0 && !txretry.Last(ctx) && !a.x.body.isLost()
}

// expected is the status that the response will have, as far as it is known before an error is answered.
func (a *attempt) expected(err error) int {
	if err != nil && a.held.status < http.StatusBadRequest {
		return http.StatusInternalServerError
	}
	return cmp.Or(a.held.status, http.StatusOK)
}

// begin begins the request's transaction, or answers the request.
func (a *attempt) begin(ctx context.Context) (answered bool, err error) {
	x := a.x
	base := ctx
	if x.config.Retries > 0 {
		a.route = &routed{Context: ctx}
		base = a.route
	}
	within, cancel := context.WithCancelCause(context.WithValue(base, attemptKey{}, a))
	defer func() {
		if a.cancel == nil {
			cancel(nil)
		}
	}()
	var tx outbox.Transaction
	if x.key.Key == "" {
		within, tx, err = x.config.Transactor.Begin(within, x.config.TxOptions)
	} else {
		within, answered, err = a.beginKeyed(within)
		tx = a.keyed
	}
	if answered || err != nil {
		return answered, err
	}
	a.cancel = cancel
	a.unit = unit{tx: tx, ctx: ctx, within: within, framework: x.framework}
	a.request = x.before.WithContext(within)
	a.request.Body = x.body.open()
	if x.config.Retries > 0 {
		a.own()
	}
	txretry.Watch(within)
	return false, nil
}

// own gives the attempt copies of the parts of a request that handlers change.
func (a *attempt) own() {
	r, before := a.request, a.x.before
	r.Header, r.Form, r.PostForm = before.Header.Clone(), cloned(before.Form), cloned(before.PostForm)
	if before.URL != nil {
		address := *before.URL
		r.URL = &address
	}
}

func cloned(form url.Values) url.Values { return url.Values(http.Header(form).Clone()) }

// beginKeyed begins the transaction of a request with a key, or answers the request.
func (a *attempt) beginKeyed(ctx context.Context) (_ context.Context, answered bool, err error) {
	keys, w, r := a.x.config.Idempotency, a.x.writer, a.x.before
	ctx, attempt, err := keys.Keys.Begin(ctx, a.x.config.Transactor, a.x.config.TxOptions, a.x.key)
	if err != nil {
		if refused := refusal(err); refused != nil {
			keys.refuse(w, r, refused)
			return ctx, true, nil
		}
		return ctx, false, err
	}
	if attempt.Done() {
		keys.replay(w, r, attempt.Answer())
		return ctx, true, nil
	}
	a.keyed = &keyed{attempt: attempt}
	return ctx, false, nil
}

// finish ends the transaction as the framework decides, and sends the response.
func (a *attempt) finish(ctx context.Context, err error) error {
	x := a.x
	if err != nil && a.held.holding() {
		if 0 < a.held.status && a.held.status < http.StatusBadRequest {
			a.held.drop()
		}
		x.answer(err)
	}
	a.finishing = true
	sending := a.held.release(http.StatusOK)
	if failed := a.held.err; failed != nil {
		if conflict := txretry.Conflict(a.request.Context(), failed); conflict != nil && a.may(ctx) {
			a.again = true
			return conflict
		}
		a.held.drop()
		return x.refuse(failed)
	}
	if sending != nil && err == nil {
		err = fmt.Errorf("httptx: sending the response: %w", sending)
	}
	return err
}

// close rolls back a transaction that finish did not end, because the handler panicked or is run
// again. After close, writes of a goroutine that outlives the handler are refused.
func (a *attempt) close() {
	a.unit.rollback()
	if !a.held.sent {
		a.held.drop()
	}
	a.held.err = errAnswered
	a.cancel(nil)
	if a.route != nil && !a.again {
		a.route.keep()
	}
}

// end ends the transaction of a response with this status. When the commit fails, end cancels the
// request's context, so that a handler that streams until the client leaves stops.
func (a *attempt) end(status int) error {
	x := a.x
	rollsBack := x.WillRollBack(status)
	var conflict error
	if rollsBack {
		conflict = txretry.Conflict(a.request.Context(), nil) // a middleware outside may run everything again
	}
	if a.keyed != nil {
		x.config.Idempotency.keep(a.keyed, x.before, &a.held, status, a.finishing, rollsBack && conflict == nil)
	}
	if rollsBack {
		a.unit.rollback()
		if a.keyed != nil && a.keyed.other != nil {
			a.held.replace(a.keyed.other)
		}
		return nil
	}
	err := a.unit.commit()
	if err != nil {
		_ = txretry.Conflict(a.request.Context(), err) // as above
		a.cancel(err)
	}
	return err
}

// leave ends the request's transactions, for a handler that works outside of them. When this fails,
// the handler returns, and the middleware answers.
func leave(ctx context.Context) error {
	for a := attemptOf(ctx); a != nil; a = a.outer {
		if err := a.held.release(http.StatusOK); err != nil {
			return err
		}
	}
	return nil
}
