package grpctx

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/txretry"
)

// call is a gRPC call in its transaction.
type call struct {
	transactor outbox.Transactor
	outer      *call // of another transactor, around this one
}

type callKey struct{}

func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// hasTransactionOf reports whether the interceptor has begun a transaction of t for
// the call.
func hasTransactionOf(ctx context.Context, t outbox.Transactor) bool {
	for c := callOf(ctx); c != nil; c = c.outer {
		if c.transactor == t {
			return true
		}
	}
	return false
}

// call runs the handler in a transaction, and again after a conflict.
func (config *Config) call(ctx context.Context, fullMethod string, request any, handler grpc.UnaryHandler) (response any, err error) {
	message, isProto := request.(proto.Message)
	if config.Retries == 0 || !isProto {
		response, _, err = config.attempt(ctx, fullMethod, request, handler)
		return response, err
	}
	_ = txretry.Do(ctx, config.Retries, func(ctx context.Context) (conflict error) {
		own := request
		if !txretry.Last(ctx) {
			own = proto.Clone(message) // the handler may change it
		}
		response, conflict, err = config.attempt(ctx, fullMethod, own, handler)
		return conflict
	})
	return response, err
}

// attempt runs the handler in a transaction. conflict is why the transaction, which was rolled back, may
// succeed when it runs again; err is for the client.
func (config *Config) attempt(ctx context.Context, fullMethod string, request any, handler grpc.UnaryHandler) (response any, conflict, err error) {
	txCtx, tx, k, err := config.begin(context.WithValue(ctx, callKey{}, &call{config.Transactor, callOf(ctx)}), fullMethod, request)
	if err != nil {
		return nil, txretry.Conflict(ctx, err), err
	}
	if k != nil && k.attempt.Done() {
		response, err = replay(ctx, k.attempt.Answer())
		return response, nil, err
	}
	finished := false
	defer func() {
		if !finished { // the handler or RollbackOn panicked
			config.rollback(ctx, tx)
		}
	}()
	txretry.Watch(txCtx)
	txCtx, release := hold(txCtx)
	response, err = handler(txCtx, request)
	rollsBack := config.RollbackOn(ctx, err)
	finished = true
	if k != nil && !rollsBack {
		if failed := k.keep(response, err); failed != nil {
			config.rollback(ctx, tx)
			return nil, nil, &CommitError{Err: failed}
		}
	}
	if rollsBack {
		conflict = txretry.Conflict(txCtx, err)
		config.rollback(ctx, tx)
	} else if failed := commit(ctx, tx); failed != nil {
		return nil, txretry.Conflict(txCtx, failed), failed
	} else {
		txretry.Committed(ctx, txCtx)
	}
	if conflict == nil || config.Retries == 0 || txretry.Last(ctx) {
		release() // else the headers of another attempt leave
	}
	return response, conflict, err
}

// commit commits the transaction, unless the client has gone.
func commit(ctx context.Context, tx outbox.Transaction) error {
	if ctx.Err() != nil {
		_ = tx.Rollback() // the end of the context has rolled the transaction back
		return &CommitError{Err: ended(ctx)}
	}
	err := tx.Commit()
	switch {
	case err == nil:
		return nil
	case errors.Is(err, sql.ErrTxDone) && !errors.Is(err, outbox.ErrOutcomeUnknown):
		err = fmt.Errorf("%w: the handler ended the transaction; leave Commit and Rollback to the interceptor: %w", outbox.ErrOutcomeUnknown, err)
	}
	return &CommitError{Err: err}
}

// ended is the end of a context, which decides the status, and the cause.
func ended(ctx context.Context) error {
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) && !errors.Is(cause, context.DeadlineExceeded) {
		return fmt.Errorf("%w: %w", ctx.Err(), cause)
	}
	return context.Cause(ctx)
}

func (config *Config) rollback(ctx context.Context, tx outbox.Transaction) {
	if err := tx.Rollback(); err != nil && !errors.Is(err, sql.ErrTxDone) {
		config.Logger.LogAttrs(ctx, slog.LevelWarn, "rolling the call's transaction back failed", slog.Any("error", err))
	}
}

// CommitError is the error that the interceptor returns when the transaction of a call did not
// commit although the handler succeeded. Interceptors outside find the cause in it; the client gets
// a status without details. When errors.Is(err, [outbox.ErrOutcomeUnknown]) holds, the transaction
// may have committed: a client that tries again needs a key; see [Idempotency].
type CommitError struct{ Err error }

// Error implements the error interface.
func (e *CommitError) Error() string {
	return "grpctx: committing the call's transaction: " + e.Err.Error()
}

// Unwrap returns the cause: the error of the database, or the cause of the context's end when the
// client has gone.
func (e *CommitError) Unwrap() error { return e.Err }

// GRPCStatus returns the status that the client gets: Unknown when the outcome of the commit is
// unknown, Canceled or DeadlineExceeded when the call's context ended, otherwise Internal.
func (e *CommitError) GRPCStatus() *status.Status {
	switch {
	case errors.Is(e.Err, outbox.ErrOutcomeUnknown):
		return status.New(codes.Unknown, "the outcome of the transaction is unknown")
	case errors.Is(e.Err, context.Canceled), errors.Is(e.Err, context.DeadlineExceeded):
		return status.FromContextError(e.Err)
	default:
		return status.New(codes.Internal, "the transaction did not commit")
	}
}

// beginError is a failure to begin, without details for the client.
type beginError struct{ err error }

func (e beginError) Error() string {
	return "grpctx: beginning the call's transaction: " + e.err.Error()
}
func (e beginError) Unwrap() error { return e.err }
func (e beginError) GRPCStatus() *status.Status {
	if errors.Is(e.err, context.Canceled) || errors.Is(e.err, context.DeadlineExceeded) {
		return status.FromContextError(e.err)
	}
	return status.New(codes.Unavailable, "no transaction could begin")
}
