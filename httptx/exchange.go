package httptx

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"

	"github.com/outboxkit/outbox-go/idempotency"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/txretry"
)

// Exchanger serves requests in transactions. The middlewares of all web frameworks share Exchanger; use it to
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

// Wants reports whether the request gets a transaction. A request with one of the ReadOnlyMethods
// does not, and neither does a request for which the transactor has already begun a transaction.
// The handler must then get the request that Wants returns: for a read-only method, the context of
// that request tells a writer why there is no transaction.
func (e *Exchanger) Wants(r *http.Request) (*http.Request, bool) {
	if a := e.around(r); a != nil {
		return r, e.ignoresKeys(a) // Serve reports that
	}
	if slices.Contains(e.config.ReadOnlyMethods, r.Method) {
		return r.WithContext(outbox.ContextWithoutTx(r.Context(), "the Transaction middleware begins none for "+r.Method+
			", which is one of TransactionConfig.ReadOnlyMethods; use another method, take it out of ReadOnlyMethods, or write in outbox.InTx")), false
	}
	return r, true
}

// around is the attempt around a request that has a transaction of the same transactor, or nil.
func (e *Exchanger) around(r *http.Request) *attempt {
	for a := attemptOf(r.Context()); a != nil; a = a.outer {
		if a.x.config.Transactor == e.config.Transactor {
			return a
		}
	}
	return nil
}

// ignoresKeys reports whether the middleware around a request has other keys than this exchanger.
func (e *Exchanger) ignoresKeys(a *attempt) bool {
	own, around := e.config.Idempotency, a.x.config.Idempotency
	return own != nil && (around == nil || around.Keys != own.Keys)
}

// Framework does the steps of an exchange that differ between web frameworks.
type Framework interface {
	// Handle runs the handlers, with the exchange's writer and request, and returns their error. With
	// Retries, Handle may run several times.
	Handle() error
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
	framework Framework
	writer    http.ResponseWriter // below the exchange's writer
	initial   http.Header         // the headers before the handler ran
	before    *http.Request
	body      body
	key       idempotency.Request // without a key: none
	first     attempt
	*attempt  // that runs now
}

// Serve serves a request in x, which is new and may be part of the value that implements f. Serve begins
// the transaction, calls f.Handle, ends the transaction as f decides, and sends the response; a request
// whose key has a stored answer gets this answer, see [Idempotency].
//
// An error of the handler is answered first, inside the held-back response; a success that the handler
// had written is dropped. When the transaction cannot begin, or the commit fails, the held-back response
// is dropped, and f answers the error, which is a [*CommitError] in the second case. When an answer
// writes nothing, the response is an empty 500. Serve returns the error, which is answered, for the
// middlewares outside.
func (e *Exchanger) Serve(x *Exchange, w http.ResponseWriter, r *http.Request, f Framework) error {
	x.config, x.framework, x.writer, x.before = &e.config, f, w, r
	if header := w.Header(); len(header) > 0 {
		x.initial = header.Clone()
	}
	x.start(&x.first)
	if e.around(r) != nil {
		return x.refuse(&outbox.FieldError{
			Field: "TransactionConfig.Idempotency", Problem: "is of no effect in another Transaction middleware of the same transactor; give the outer middleware the keys, or mount it elsewhere",
		})
	}
	var read []byte
	if keys := e.config.Idempotency; keys != nil {
		var refused *KeyError
		if x.key, read, refused = keys.request(r); refused != nil {
			keys.refuse(w, r, refused)
			return nil
		}
	}
	if e.config.Retries == 0 {
		x.body.set(r, read, e.config.ReadBody, 0)
		return x.run(r.Context())
	}
	x.body.set(r, read, e.config.ReadBody, e.config.MaxBuffer)
	var err error
	_ = txretry.Do(r.Context(), e.config.Retries, func(ctx context.Context) error {
		if err = x.run(ctx); x.again {
			return err
		}
		return nil
	})
	if x.again { // but the request has ended meanwhile
		return x.refuse(fmt.Errorf("httptx: the request was not run again: %w", err))
	}
	return err
}

// start makes an attempt the one that runs now.
func (x *Exchange) start(a *attempt) {
	a.x, a.outer, a.request = x, attemptOf(x.before.Context()), x.before
	a.held = heldResponse{ResponseWriter: x.writer, initial: x.initial, maxBuffer: x.config.MaxBuffer, attempt: a}
	x.attempt = a
}

// refuse answers an error outside of a transaction.
func (x *Exchange) refuse(err error) error {
	x.held.sent, x.held.err = true, nil
	x.request = x.before
	x.answer(err)
	return err
}

// answer answers an error. Without an answer, net/http would send a 200.
func (x *Exchange) answer(err error) {
	x.framework.Answer(err)
	if x.held.status == 0 {
		x.held.WriteHeader(http.StatusInternalServerError)
	}
}

// ResponseWriter returns the writer that holds the response back. The writer implements
// [http.Flusher], [http.Hijacker] and the methods that [http.ResponseController] uses.
func (x *Exchange) ResponseWriter() http.ResponseWriter { return &x.held }

// Request returns the request, whose context carries the transaction. After a commit that failed,
// Request returns the request that Serve got: the context of that request is alive and carries no
// transaction.
func (x *Exchange) Request() *http.Request { return x.request }

// Status returns the status that was written, or zero.
func (x *Exchange) Status() int { return x.held.status }

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
