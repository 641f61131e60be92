package sqltx

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"reflect"

	"github.com/outboxkit/outbox-go/internal/txscope"
	"github.com/outboxkit/outbox-go/outbox"
)

// Beginner begins transactions: *sql.DB, or anything that embeds one.
type Beginner interface {
	BeginTx(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error)
}

// Adapter writes events in transactions of one pool. It is safe for concurrent
// use.
type Adapter struct {
	db             Beginner
	writer         *outbox.Writer
	source         any
	dialect        string
	probe          bool
	connector      uint64 // the id of the pool's, when that is a wrapped one
	allowUnmanaged bool
	log            *slog.Logger
	err            error // what is wrong with the arguments of New
}

var _ outbox.Transactor = (*Adapter)(nil)

// Option changes an adapter.
type Option func(*Adapter)

// AllowUnmanaged lets [Adapter.Write] write in a *sql.Tx that neither the adapter
// began nor a pool with [WrapConnector]. The adapter cannot tell when it commits,
// so the poller delivers the events, a little later. Without the option such a
// write is [outbox.ErrUnmanagedTransaction].
func AllowUnmanaged() Option { return func(a *Adapter) { a.allowUnmanaged = true } }

// WithLogger is the logger that is told of callbacks that panic. Defaults to
// slog.Default().
func WithLogger(log *slog.Logger) Option { return func(a *Adapter) { a.log = log } }

// New makes the adapter of a pool and the writer for it. What is wrong with the
// arguments is reported by each call: [outbox.ErrForeignTransaction] when the
// writer is one for another pool.
func New(db Beginner, writer *outbox.Writer, opts ...Option) *Adapter {
	a := &Adapter{db: db, writer: writer}
	for _, opt := range opts {
		opt(a)
	}
	var problems []error
	if isNil(db) {
		problems = append(problems, &outbox.FieldError{Field: "sqltx.New db", Problem: "is nil"})
	} else {
		a.source = outbox.PoolOf(db)
		if !reflect.TypeOf(a.source).Comparable() {
			problems = append(problems, &outbox.FieldError{Field: "sqltx.New db", Problem: fmt.Sprintf("is a %T, which cannot be compared; give a pointer", db)})
		}
	}
	if writer == nil {
		problems = append(problems, &outbox.FieldError{Field: "sqltx.New writer", Problem: "is nil"})
	}
	if a.err = errors.Join(problems...); a.err != nil {
		return a
	}
	if writer.Source() != a.source {
		a.err = fmt.Errorf("%w: sqltx.New was given a writer for another pool (%T) than its db (%T)",
			outbox.ErrForeignTransaction, writer.Source(), a.source)
	}
	a.dialect = dialectOf(a.source, writer.Store())
	a.probe = txscope.NeedsProbe(a.source, a.dialect)
	a.connector = poolConnector(a.source)
	return a
}

func isNil(v any) bool {
	if v == nil {
		return true
	}
	value := reflect.ValueOf(v)
	return value.Kind() == reflect.Pointer && value.IsNil()
}

// RunInTx runs fn in a transaction: committed when fn returns nil, rolled back
// when it returns an error, panics or ends its goroutine, or when ctx ends
// before it returned. The context that fn gets carries the transaction. When ctx
// carries an open one of the same pool already, fn runs under a savepoint of it
// and opts are not looked at. fn leaves Commit and Rollback to RunInTx: when it
// called one, RunInTx returns [sql.ErrTxDone].
//
// An error of COMMIT for which errors.Is(err, [outbox.ErrOutcomeUnknown]) holds
// leaves it open whether the transaction committed.
func (a *Adapter) RunInTx(ctx context.Context, opts *sql.TxOptions, fn func(ctx context.Context, tx *Tx) error) error {
	txCtx, tx, err := a.beginOrNest(ctx, opts)
	if err != nil {
		return err
	}
	finished := false
	defer func() {
		if !finished {
			_ = tx.rollback(errAbandoned)
		}
	}()
	err = fn(txCtx, tx)
	finished = true
	if err == nil {
		return tx.Commit()
	}
	if rollbackErr := tx.rollback(err); rollbackErr != nil && !errors.Is(rollbackErr, sql.ErrTxDone) {
		return fmt.Errorf("%w (then rolling back failed: %w)", err, rollbackErr)
	}
	return err
}

var errAbandoned = errors.New("outbox: the transaction's function panicked or ended its goroutine")

// BeginTx begins a transaction, always a new one. It rolls back by itself when
// ctx ends before Commit was called. opts may be nil.
func (a *Adapter) BeginTx(ctx context.Context, opts *sql.TxOptions) (*Tx, error) {
	if a.err != nil {
		return nil, a.err
	}
	return a.begin(ctx, opts)
}

// Begin implements [outbox.Transactor]: a transaction, or a savepoint when ctx
// carries an open transaction of the same pool, and a context that carries it.
func (a *Adapter) Begin(ctx context.Context, opts *sql.TxOptions) (context.Context, outbox.Transaction, error) {
	txCtx, tx, err := a.beginOrNest(ctx, opts)
	if err != nil {
		return nil, nil, err
	}
	return txCtx, tx, nil
}

func (a *Adapter) beginOrNest(ctx context.Context, opts *sql.TxOptions) (context.Context, *Tx, error) {
	if a.err != nil {
		return nil, nil, a.err
	}
	var tx *Tx
	var err error
	if outer, ok := a.TxFrom(ctx); ok {
		tx, err = outer.nest(ctx)
	} else {
		tx, err = a.begin(ctx, opts)
	}
	if err != nil {
		return nil, nil, err
	}
	return txscope.ContextWithLevel(ctx, level{tx}), tx, nil
}
