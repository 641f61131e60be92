package outboxgorm

import (
	"context"

	"gorm.io/gorm"

	"github.com/outboxkit/outbox-go/internal/txscope"
	"github.com/outboxkit/outbox-go/outbox"
)

// level is a transaction in a context, with the handle that is in it.
type level struct {
	*transaction
	db *gorm.DB
}

func (l level) Session() *txscope.Session { return l.tx.session }

func (l level) Open() bool { return l.refuses != nil || !l.tx.session.Ending() }

// WithTx returns a context that carries the transaction that db is in, for code
// below that has no *gorm.DB: the outbox's writer writes in it, [TxFrom] finds
// it, and [Adapter.Begin] makes a savepoint in it. When the plugin did not see it
// begin, or db is of a DryRun session, TxFrom finds it for as long as the
// context lives, and the writer answers [outbox.ErrNoTransaction]: with the
// option [AllowUnmanaged] too, for that is the adapter's. A db that is in no
// transaction leaves ctx as it is.
func WithTx(ctx context.Context, db *gorm.DB) context.Context {
	connPool, err := handleOf(db)
	if err != nil {
		return ctx
	}
	t := txOf(connPool)
	switch {
	case t != nil && !db.DryRun:
		return txscope.ContextWithLevel(ctx, level{&transaction{tx: t, ctx: ctx}, db})
	case t != nil:
		return txscope.ContextWithLevel(ctx, refusing(ctx, db, t.pool.source, ErrDryRun))
	case plainTx(connPool) == nil:
		return ctx
	}
	pool, err := db.DB()
	if err != nil {
		return ctx
	}
	return txscope.ContextWithLevel(ctx, refusing(ctx, db, outbox.PoolOf(pool), outbox.ErrUnmanagedTransaction))
}

// refusing is a level whose transaction takes no event. It has a scope that has
// ended, so that a writer does not find the one of a transaction around it.
func refusing(ctx context.Context, db *gorm.DB, source any, why error) level {
	session := txscope.Adopt(ctx, txscope.SessionConfig{Source: source}, txscope.AdoptedTx{Release: func() {}})
	session.Lost()
	return level{&transaction{tx: &tx{session: session}, ctx: ctx, refuses: why}, db}
}

// TxFrom is the innermost transaction that ctx carries and that is still open,
// of whatever pool, as a handle whose statements run with ctx.
func TxFrom(ctx context.Context) (*gorm.DB, bool) { return txFrom(ctx, nil) }

// TxFrom is the innermost transaction of the adapter's pool that ctx carries and
// that is still open, as a handle whose statements run with ctx.
func (a *Adapter) TxFrom(ctx context.Context) (*gorm.DB, bool) { return txFrom(ctx, a.source) }

func txFrom(ctx context.Context, source any) (*gorm.DB, bool) {
	l, ok := txscope.LevelFrom[level](ctx, source)
	if !ok {
		return nil, false
	}
	return l.db.WithContext(ctx), true
}
