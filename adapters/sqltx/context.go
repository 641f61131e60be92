package sqltx

import (
	"context"

	"github.com/outboxkit/outbox-go/outbox/txscope"
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
