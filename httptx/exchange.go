package httptx

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"

	"github.com/outboxkit/outbox-go/idempotency"
	"github.com/outboxkit/outbox-go/outbox"
)

// Exchanger begins exchanges. The middlewares of all web frameworks share Exchanger; use it to
// write a middleware for another framework. It is safe for concurrent use.
type Exchanger struct{ config TransactionConfig }

// NewExchanger returns an exchanger for a copy of the config. The exchanger does not use the fields
// Skipper, RollbackOn, ErrorHandler and Logger, which are for net/http; [Framework] replaces them
// for other frameworks. The error joins an [outbox.FieldError] for each field that is wrong.
func NewExchanger(config TransactionConfig) (*Exchanger, error) {
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
	config.Idempotency, _ = config.Idempotency.withDefaults()
	if config.TxOptions != nil {
		options := *config.TxOptions
		config.TxOptions = &options
	}
	return &Exchanger{config}, nil
}

// Framework does the steps of an exchange that differ between web frameworks.
type Framework interface {
	// Answer calls the framework's error handler, which answers err through the
	// exchange's writer, and leaves a failure that is already written as it is.
	Answer(err error)
	// RollsBack decides between COMMIT and ROLLBACK for a response with this status, if nothing called
	// [Rollback] or [Commit]. [Failed] is the rule of this project's middlewares.
	RollsBack(status int) bool
	// Logger gets the failures that the request's error cannot report: a rollback that failed, and
	// a panic of an [OnCommit] callback.
	Logger() *slog.Logger
}

// Exchange is a request and its response, which is held back until the request's transaction has
// ended.
type Exchange struct {
	config    *TransactionConfig
	outer     *Exchange // of another transactor, around this one
	framework Framework
	unit      unit
	held      heldResponse
	cancel    context.CancelCauseFunc
	before    *http.Request
	request   *http.Request // with the transaction, until a commit has failed
	keyed     *keyed        // nil: the request has no key
	finishing bool          // the response is complete
}

type exchangeKey struct{}

// exchangeOf returns the innermost exchange of the request, or nil.
func exchangeOf(ctx context.Context) *Exchange {
	x, _ := ctx.Value(exchangeKey{}).(*Exchange)
	return x
}

// Wants reports whether the request gets a transaction. A request with one of the ReadOnlyMethods
// does not, and neither does a request for which the transactor has already begun a transaction.
// The handler must then get the request that Wants returns: for a read-only method, the context of
// that request tells a writer why there is no transaction.
func (e *Exchanger) Wants(r *http.Request) (*http.Request, bool) {
	if x := e.around(r); x != nil {
		return r, e.ignoresKeys(x) // Begin reports that
	}
	if slices.Contains(e.config.ReadOnlyMethods, r.Method) {
		return r.WithContext(outbox.ContextWithoutTx(r.Context(), "the Transaction middleware begins none for "+r.Method+
			", which is one of TransactionConfig.ReadOnlyMethods; use another method, take it out of ReadOnlyMethods, or write in outbox.InTx")), false
	}
	return r, true
}

// around is the exchange around a request that has a transaction of the same transactor, or nil.
func (e *Exchanger) around(r *http.Request) *Exchange {
	for x := exchangeOf(r.Context()); x != nil; x = x.outer {
		if x.config.Transactor == e.config.Transactor {
			return x
		}
	}
	return nil
}

// ignoresKeys reports whether the exchange around a request has other keys than this exchanger.
func (e *Exchanger) ignoresKeys(x *Exchange) bool {
	own, around := e.config.Idempotency, x.config.Idempotency
	return own != nil && (around == nil || around.Keys != own.Keys)
}

// Begin begins the request's transaction in x, which is new and may be part of the value that
// implements f. The handler gets the exchange's writer and request; then call Finish, and Close in
// any case. When Begin has answered the request, as a request whose key has a stored answer, the
// middleware returns; see [Idempotency].
func (e *Exchanger) Begin(x *Exchange, w http.ResponseWriter, r *http.Request, f Framework) (answered bool, err error) {
	x.config, x.outer, x.framework = &e.config, exchangeOf(r.Context()), f
	x.before, x.request = r, r
	x.held = heldResponse{ResponseWriter: w, maxBuffer: e.config.MaxBuffer, exchange: x}
	if header := w.Header(); len(header) > 0 {
		x.held.initial = header.Clone()
	}
	if e.around(r) != nil {
		return false, &outbox.FieldError{
			Field: "TransactionConfig.Idempotency", Problem: "is of no effect in another Transaction middleware of the same transactor; give the outer middleware the keys, or mount it elsewhere",
		}
	}
	ctx, cancel := context.WithCancelCause(context.WithValue(r.Context(), exchangeKey{}, x))
	defer func() {
		if answered || err != nil {
			cancel(nil)
		}
	}()
	var request idempotency.Request
	var body io.ReadCloser
	if keys := e.config.Idempotency; keys != nil {
		var read []byte
		var refused *KeyError
		if request, read, refused = keys.request(r); refused != nil {
			keys.refuse(w, r, refused)
			return true, nil
		}
		if body = r.Body; read != nil {
			body = &aheadBody{Reader: bytes.NewReader(read), Closer: r.Body}
		}
	}
	var tx outbox.Transaction
	if request.Key == "" {
		body = readAhead(r, e.config.ReadBody)
		ctx, tx, err = e.config.Transactor.Begin(ctx, e.config.TxOptions)
	} else {
		ctx, answered, err = x.beginKeyed(ctx, request)
		tx = x.keyed
	}
	if answered || err != nil {
		if err != nil {
			err = fmt.Errorf("httptx: beginning the request's transaction: %w", err)
		}
		return answered, err
	}
	x.cancel = cancel
	x.unit = unit{tx: tx, ctx: r.Context(), framework: f}
	x.request = r.WithContext(ctx)
	x.request.Body = body
	return false, nil
}

// beginKeyed begins the transaction of a request with a key, or answers the request.
func (x *Exchange) beginKeyed(ctx context.Context, request idempotency.Request) (_ context.Context, answered bool, err error) {
	keys, w, r := x.config.Idempotency, x.held.ResponseWriter, x.before
	ctx, attempt, err := keys.Keys.Begin(ctx, x.config.Transactor, x.config.TxOptions, request)
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
	x.keyed = &keyed{attempt: attempt}
	return ctx, false, nil
}

// ResponseWriter returns the writer that holds the response back. The writer implements
// [http.Flusher], [http.Hijacker] and the methods that [http.ResponseController] uses.
func (x *Exchange) ResponseWriter() http.ResponseWriter { return &x.held }

// Request returns the request, whose context carries the transaction. After a commit that failed,
// Request returns the request that Begin got: the context of that request is alive and carries no
// transaction.
func (x *Exchange) Request() *http.Request { return x.request }

// Status returns the status that was written, or zero.
func (x *Exchange) Status() int { return x.held.status }

// Finish ends the transaction as the framework decides, and sends the response. An error of the
// handler is answered first, inside the held-back response; a success that the handler had written
// is dropped. When the commit fails, the held-back response is dropped, and the framework answers a
// [*CommitError]. When an answer writes nothing, the response is an empty 500. Finish returns the
// error for the middlewares outside.
func (x *Exchange) Finish(err error) error {
	if err != nil && x.held.holding() {
		if 0 < x.held.status && x.held.status < http.StatusBadRequest {
			x.held.drop()
		}
		x.answer(err)
	}
	x.finishing = true
	sending := x.held.release(http.StatusOK)
	if failed := x.held.err; failed != nil {
		x.held.drop()
		x.held.sent, x.held.err = true, nil
		x.request = x.before
		x.answer(failed)
		return failed
	}
	if sending != nil && err == nil {
		err = fmt.Errorf("httptx: sending the response: %w", sending)
	}
	return err
}

// answer answers an error. Without an answer, net/http would send a 200.
func (x *Exchange) answer(err error) {
	x.framework.Answer(err)
	if x.held.status == 0 {
		x.held.WriteHeader(http.StatusInternalServerError)
	}
}

// WillRollBack reports how the transaction ends with a response of this status: as [Rollback] or
// [Commit] decided, else as the framework decides.
func (x *Exchange) WillRollBack(status int) bool {
	switch x.unit.decided() {
	case toCommit:
		return false
	case toRollBack:
		return true
	default:
		return x.framework.RollsBack(status)
	}
}

// Close rolls back a transaction that Finish did not end, because the handler panicked. After
// Close, writes of a goroutine that outlives the handler are refused.
func (x *Exchange) Close() {
	if x.cancel == nil { // the request was answered by Begin
		return
	}
	x.unit.rollback()
	if !x.held.sent {
		x.held.drop()
	}
	x.held.err = errAnswered
	x.cancel(nil)
}

// end ends the transaction of a response with this status. When the commit fails, end cancels the
// request's context, so that a handler that streams until the client leaves stops.
func (x *Exchange) end(status int) error {
	rollsBack := x.WillRollBack(status)
	if x.keyed != nil {
		x.config.Idempotency.keep(x.keyed, x.before, &x.held, status, x.finishing, rollsBack)
	}
	if rollsBack {
		x.unit.rollback()
		if x.keyed != nil && x.keyed.other != nil {
			x.held.replace(x.keyed.other)
		}
		return nil
	}
	err := x.unit.commit()
	if err != nil {
		x.cancel(err)
	}
	return err
}

// leave ends the request's transactions, for a handler that works outside of them. When this fails,
// the handler returns, and the middleware answers.
func leave(ctx context.Context) error {
	for x := exchangeOf(ctx); x != nil; x = x.outer {
		if err := x.held.release(http.StatusOK); err != nil {
			return err
		}
	}
	return nil
}
