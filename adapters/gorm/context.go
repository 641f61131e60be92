package outboxgorm

import (
	"context"

	"gorm.io/gorm"

	"github.com/outboxkit/outbox-go/outbox/txscope"
)

// level is a transaction in a context, with the handle that is in it.
type level struct {
	*transaction
	db *gorm.DB
}

func (l level) Session() *txscope.Session { return l.tx.session }

func (l level) Open() bool { return !l.done.Load() && !l.tx.session.Ending() }

// WithTx returns a context that carries the transaction that db is in, for code
// below that has no *gorm.DB: the outbox's writer writes in it, [TxFrom] finds
// it, and [Adapter.Begin] makes a savepoint in it. A db that is in no open
// transaction of the plugin's leaves ctx as it is.
func WithTx(ctx context.Context, db *gorm.DB) context.Context {
	connPool, err := handleOf(db)
	if err != nil {
		return ctx
	}
	t := txOf(connPool)
	if t == nil || t.session.Ending() {
		return ctx
	}
	return txscope.ContextWithLevel(ctx, level{&transaction{tx: t, ctx: ctx}, db})
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
