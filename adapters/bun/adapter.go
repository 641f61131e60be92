package outboxbun

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/uptrace/bun"

	"github.com/outboxkit/outbox-go/outbox"
)

// Adapter writes events in transactions of one db. It is safe for concurrent
// use.
type Adapter struct {
	db             *bun.DB
	hook           *hook
	writer         *outbox.Writer
	allowUnmanaged bool
}

var _ outbox.Transactor = (*Adapter)(nil)

// Option changes an adapter.
type Option func(*Adapter)

// AllowUnmanaged lets [Adapter.Write] write in a transaction that the hook does
// not know: one begun on a db without it, or nested with a foreign context. The
// adapter cannot tell when it commits, so the poller delivers the events, a
// little later. Without the option such a write is
// [outbox.ErrUnmanagedTransaction].
func AllowUnmanaged() Option { return func(a *Adapter) { a.allowUnmanaged = true } }

// New makes the adapter of a db that [Attach] returned and the writer for its
// pool. It fails with a [*outbox.FieldError] when one is nil or the db is
// without the hook, and with [outbox.ErrForeignTransaction] when the writer is
// one for another pool.
func New(db *bun.DB, writer *outbox.Writer, opts ...Option) (*Adapter, error) {
	a := &Adapter{db: db, writer: writer}
	for _, opt := range opts {
		opt(a)
	}
	var problems []error
	if db == nil {
		problems = append(problems, &outbox.FieldError{Field: "outboxbun.New db", Problem: "is nil"})
	} else if a.hook = hookOf(db); a.hook == nil {
		problems = append(problems, &outbox.FieldError{
			Field: "outboxbun.New db", Problem: "is without the query hook; begin all transactions on what db = outboxbun.Attach(db) returns, and give that",
		})
	}
	if writer == nil {
		problems = append(problems, &outbox.FieldError{Field: "outboxbun.New writer", Problem: "is nil"})
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	if writer.Source() != a.hook.source {
		return nil, fmt.Errorf("%w: outboxbun.New was given a writer for another pool (%T) than the db's (%T): make the outbox with the *sql.DB below the *bun.DB",
			outbox.ErrForeignTransaction, writer.Source(), a.hook.source)
	}
	return a, nil
}

// Begin implements [outbox.Transactor]: a transaction, or a savepoint when ctx
// carries an open transaction of the same db, and a context that carries it.
// Unlike those of bun alone, a savepoint whose context has ended, or under which
// a statement failed, is rolled back when it is committed, with an error.
func (a *Adapter) Begin(ctx context.Context, opts *sql.TxOptions) (context.Context, outbox.Transaction, error) {
	if outer, ok := a.TxFrom(ctx); ok {
		return a.nest(ctx, outer)
	}
	tx, err := a.db.BeginTx(ctx, opts)
	if err != nil {
		return nil, nil, err
	}
	s := sessionOf(tx)
	if s == nil || !s.learn(tx) { // the context ended meanwhile
		_ = tx.Rollback()
		return nil, nil, errors.Join(ctx.Err(), outbox.ErrNoTransaction)
	}
	t := &transaction{level: level{tx: tx, session: s, done: new(atomic.Bool)}, ctx: ctx}
	return contextWithLevel(ctx, t.level), t, nil
}

// nest makes a savepoint. Its own statements run whatever became of ctx.
func (a *Adapter) nest(ctx context.Context, outer bun.Tx) (context.Context, outbox.Transaction, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	s := sessionOf(outer)
	if s == nil {
		return nil, nil, outbox.ErrNoTransaction
	}
	s.verify(ctx)
	if err := s.Scope().Doomed(); err != nil {
		return nil, nil, fmt.Errorf("%w: the database rolled it back: %w", outbox.ErrNoTransaction, err)
	}
	own := context.WithValue(context.WithoutCancel(ctx), sessionKey{s.hook}, s)
	tx, err := outer.BeginTx(own, nil)
	if err != nil {
		return nil, nil, fmt.Errorf("outbox: opening a savepoint: %w", err)
	}
	t := &transaction{level: level{tx: tx, session: s, done: new(atomic.Bool)}, ctx: ctx, nested: true}
	return contextWithLevel(ctx, t.level), t, nil
}

// transaction is what Begin opened.
type transaction struct {
	level
	ctx    context.Context // of this level: when it ends, so does the level
	nested bool
}

// Commit implements [outbox.Transaction].
func (t *transaction) Commit() error {
	if !t.done.CompareAndSwap(false, true) {
		return sql.ErrTxDone
	}
	if t.nested {
		return t.session.Release(t.ctx, t.tx.Commit, t.rollbackTo)
	}
	err := t.tx.Commit()
	if result := t.session.result.Load(); result != nil {
		return *result // it tells more
	}
	return err
}

// Rollback implements [outbox.Transaction].
func (t *transaction) Rollback() error {
	if !t.done.CompareAndSwap(false, true) {
		return sql.ErrTxDone
	}
	if !t.nested {
		return t.tx.Rollback()
	}
	if t.session.Ending() {
		return sql.ErrTxDone
	}
	return t.rollbackTo()
}

func (t *transaction) rollbackTo() error {
	if err := t.tx.Rollback(); err != nil {
		return fmt.Errorf("outbox: rolling back to a savepoint: %w", err)
	}
	// The savepoint outlives that; it is only clutter now.
	_ = t.tx.Commit()
	return nil
}
