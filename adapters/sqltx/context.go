package sqltx

import (
	"context"

	"github.com/outboxkit/outbox-go/outbox"
)

type txsKey struct{}

// txs is the list of the transactions in a context, innermost first.
type txs struct {
	tx    *Tx
	outer *txs
}

// TxFrom is the innermost transaction that ctx carries and that is still open.
func TxFrom(ctx context.Context) (*Tx, bool) {
	for l, _ := ctx.Value(txsKey{}).(*txs); l != nil; l = l.outer {
		if l.tx.open() {
			return l.tx, true
		}
	}
	return nil, false
}

// txFrom is TxFrom among the transactions of one pool.
func txFrom(ctx context.Context, source any) (*Tx, bool) {
	for l, _ := ctx.Value(txsKey{}).(*txs); l != nil; l = l.outer {
		if l.tx.open() && l.tx.session.scope.Source() == source {
			return l.tx, true
		}
	}
	return nil, false
}

func contextWithTx(ctx context.Context, tx *Tx) context.Context {
	outer, _ := ctx.Value(txsKey{}).(*txs)
	ctx = context.WithValue(ctx, txsKey{}, &txs{tx: tx, outer: outer})
	if scope, ok := outbox.ScopeFromContext(ctx, tx.session.scope.Source()); ok && scope == outbox.TxScope(tx.session.scope) {
		return ctx // a savepoint: the scope is the transaction's
	}
	return outbox.ContextWithScope(ctx, tx.session.scope)
}
