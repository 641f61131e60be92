package sqltx

import (
	"context"

	"github.com/outboxkit/outbox-go/internal/txscope"
	"github.com/outboxkit/outbox-go/outbox"
)

// level is a *Tx in a context.
type level struct{ tx *Tx }

func (l level) Session() *txscope.Session { return l.tx.session.Session }

func (l level) Open() bool { return l.tx.open() }

// TxFrom is the innermost transaction that ctx carries and that is still open,
// of whatever pool.
func TxFrom(ctx context.Context) (*Tx, bool) {
	l, ok := txscope.LevelFrom[level](ctx, nil)
	return l.tx, ok
}

// TxFrom is the innermost transaction of the adapter's pool that ctx carries and
// that is still open.
func (a *Adapter) TxFrom(ctx context.Context) (*Tx, bool) {
	if a.err != nil {
		return nil, false
	}
	l, ok := txscope.LevelFrom[level](ctx, a.source)
	return l.tx, ok
}

// WithTx returns a context that carries a transaction which the caller has begun
// and will end, so that code below can write with nothing but the outbox's
// writer. It takes what [Adapter.Write] takes, and fails as that does; with the
// option [AllowUnmanaged], too, the transaction has to be one that the adapter
// can follow. [Adapter.RunInTx] nests in a *[Tx] that it finds in the context,
// and begins a transaction of its own beside any other.
func (a *Adapter) WithTx(ctx context.Context, tx AnyTx) (context.Context, error) {
	if a.err != nil {
		return nil, a.err
	}
	scope, err := a.scopeOf(ctx, tx)
	if err != nil {
		return nil, err
	}
	if scope.Source() != a.source {
		return nil, outbox.ErrForeignTransaction
	}
	if tx, ok := tx.(*Tx); ok {
		return txscope.ContextWithLevel(ctx, level{tx}), nil
	}
	return outbox.ContextWithScope(ctx, scope), nil
}
