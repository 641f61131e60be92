package connecttx

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/txretry"
)

// call is a call in its transaction.
type call struct {
	transactor outbox.Transactor
	outer      *call // of another transactor, around this one
}

type callKey struct{}

// hasTransactionOf reports whether the interceptor has begun a transaction of t for
// the call.
func hasTransactionOf(ctx context.Context, t outbox.Transactor) bool {
	for c, _ := ctx.Value(callKey{}).(*call); c != nil; c = c.outer {
		if c.transactor == t {
			return true
		}
	}
	return false
}

// call runs the handler in a transaction, and again after a conflict.
func (i *interceptor) call(ctx context.Context, req connect.AnyRequest, next connect.UnaryFunc) (response connect.AnyResponse, err error) {
	var restart func()
	can := i.Retries > 0
	if can {
		restart, can = snapshot(req)
	}
	if !can {
		response, _, err = i.attempt(ctx, req, next)
		return response, err
	}
	_ = txretry.Do(ctx, i.Retries, func(ctx context.Context) (conflict error) {
		if txretry.Attempt(ctx) > 1 {
			restart()
		}
		response, conflict, err = i.attempt(ctx, req, next)
		return conflict
	})
	return response, err
}

// snapshot returns a function that gives the request the message and the headers again that it has now: a
// handler may change them. A message that is no protocol buffer cannot be copied.
func snapshot(req connect.AnyRequest) (restart func(), can bool) {
	message, isProto := req.Any().(proto.Message)
	if !isProto {
		return nil, false
	}
	header, copied := req.Header().Clone(), proto.Clone(message)
	return func() {
		replace(req.Header(), header.Clone())
		proto.Reset(message)
		proto.Merge(message, copied)
	}, true
}

// attempt runs the handler in a transaction. conflict is why the transaction, which was rolled back, may
// succeed when it runs again; err is for the client.
func (i *interceptor) attempt(ctx context.Context, req connect.AnyRequest, next connect.UnaryFunc) (response connect.AnyResponse, conflict, err error) {
	outer, _ := ctx.Value(callKey{}).(*call)
	txCtx, tx, k, err := i.begin(context.WithValue(ctx, callKey{}, &call{i.Transactor, outer}), req)
	if err != nil {
		return nil, txretry.Conflict(ctx, err), err
	}
	if k != nil && k.attempt.Done() {
		response, err = replay(k.attempt.Answer())
		return response, nil, err
	}
	txretry.Watch(txCtx)
	takeBack := headers(ctx)
	ended := false
	defer func() {
		if !ended { // by a panic, or because the answer cannot be stored
			takeBack()
			i.rollback(ctx, tx)
		}
	}()
	response, err = next(txCtx, req)
	if i.RollbackOn(ctx, err) {
		ended = true
		conflict = txretry.Conflict(txCtx, err)
		i.rollback(ctx, tx)
		if conflict != nil && i.Retries > 0 && !txretry.Last(ctx) {
			takeBack()
		}
		return response, conflict, err
	}
	if k != nil {
		if failed := k.keep(response, err); failed != nil {
			return nil, nil, newCommitError(failed)
		}
	}
	ended = true
	if failed := commit(ctx, tx); failed != nil {
		takeBack()
		return nil, txretry.Conflict(txCtx, failed), newCommitError(failed)
	}
	txretry.Committed(ctx, txCtx)
	return response, nil, err
}

// headers returns a function that takes back the headers and trailers that a handler sets in the
// [connect.CallInfo] of its context. connect 1.21 sends them, unlike the headers of a response, also with
// an error. A call outside of a server, as in a test, has no headers.
func headers(ctx context.Context) (takeBack func()) {
	info, ok := connect.CallInfoForHandlerContext(ctx)
	if !ok {
		return func() {}
	}
	header, trailer := info.ResponseHeader().Clone(), info.ResponseTrailer().Clone()
	return func() {
		replace(info.ResponseHeader(), header)
		replace(info.ResponseTrailer(), trailer)
	}
}

func replace(h, by http.Header) {
	clear(h)
	maps.Copy(h, by)
}

// commit commits the transaction, unless the client has gone.
func commit(ctx context.Context, tx outbox.Transaction) error {
	if ctx.Err() != nil {
		_ = tx.Rollback() // the end of the context has rolled the transaction back
		return ended(ctx)
	}
	err := tx.Commit()
	if errors.Is(err, sql.ErrTxDone) && !errors.Is(err, outbox.ErrOutcomeUnknown) {
		return fmt.Errorf("%w: the handler ended the transaction; leave Commit and Rollback to the interceptor: %w", outbox.ErrOutcomeUnknown, err)
	}
	return err
}

// ended is the end of a context, which decides the code, and the cause.
func ended(ctx context.Context) error {
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) && !errors.Is(cause, context.DeadlineExceeded) {
		return fmt.Errorf("%w: %w", ctx.Err(), cause)
	}
	return context.Cause(ctx)
}

func (i *interceptor) rollback(ctx context.Context, tx outbox.Transaction) {
	if err := tx.Rollback(); err != nil && !errors.Is(err, sql.ErrTxDone) {
		i.Logger.LogAttrs(ctx, slog.LevelWarn, "rolling the call's transaction back failed", slog.Any("error", err))
	}
}

// CommitError is the error that the interceptor returns when the transaction of a call did not
// commit although the handler succeeded. Interceptors outside find the cause in it; the client gets
// a code without details. When errors.Is(err, [outbox.ErrOutcomeUnknown]) holds, the transaction
// may have committed: a client that tries again needs a key; see [Idempotency].
//
// For [errors.As], and so for [connect.CodeOf], a CommitError is a [*connect.Error] too: of CodeUnknown
// when the outcome of the commit is unknown, of CodeCanceled or CodeDeadlineExceeded when the call's
// context ended, otherwise of CodeInternal.
type CommitError struct {
	// Err is the error of the database, or the cause of the context's end when the client has gone.
	Err error

	answer *connect.Error // to which interceptors outside may add headers
}

func newCommitError(err error) *CommitError { return &CommitError{err, commitAnswer(err)} }

// Error implements the error interface.
func (e *CommitError) Error() string {
	return "connecttx: committing the call's transaction: " + e.Err.Error()
}

// Unwrap returns Err.
func (e *CommitError) Unwrap() error { return e.Err }

// As sets a target of the type **[connect.Error] to the error that the client gets.
func (e *CommitError) As(target any) bool {
	answer := e.answer
	if answer == nil {
		answer = commitAnswer(e.Err)
	}
	return as(answer, target)
}

// as sets the target to the error that the client gets. connect sends the text of an error that is no
// [*connect.Error] to the client.
func as(answer *connect.Error, target any) bool {
	t, ok := target.(**connect.Error)
	if ok {
		*t = answer
	}
	return ok
}

func commitAnswer(err error) *connect.Error {
	if errors.Is(err, outbox.ErrOutcomeUnknown) {
		return connect.NewError(connect.CodeUnknown, errors.New("the outcome of the transaction is unknown"))
	}
	return answer(err, connect.CodeInternal, "the transaction did not commit")
}

// answer is the error that the client gets: the end of the call's context, or else the code and the text.
func answer(err error, otherwise connect.Code, text string) *connect.Error {
	code := codeOf(err, otherwise)
	if code != otherwise {
		text = "the call has ended"
	}
	return connect.NewError(code, errors.New(text))
}

// codeOf is the code of an error that is no [*connect.Error].
func codeOf(err error, otherwise connect.Code) connect.Code {
	switch {
	case errors.Is(err, context.Canceled):
		return connect.CodeCanceled
	case errors.Is(err, context.DeadlineExceeded):
		return connect.CodeDeadlineExceeded
	default:
		return otherwise
	}
}

// beginError is a failure to begin, without details for the client.
type beginError struct {
	err    error
	answer *connect.Error
}

func newBeginError(err error) *beginError {
	return &beginError{err, answer(err, connect.CodeUnavailable, "no transaction could begin")}
}

func (e *beginError) Error() string {
	return "connecttx: beginning the call's transaction: " + e.err.Error()
}
func (e *beginError) Unwrap() error      { return e.err }
func (e *beginError) As(target any) bool { return as(e.answer, target) }
