package outboxbun

import (
	"context"
	"sync/atomic"

	"github.com/uptrace/bun"

	"github.com/outboxkit/outbox-go/internal/txscope"
)

// level is a bun.Tx in a context.
type level struct {
	tx      bun.Tx
	session *session
	done    *atomic.Bool
}

func (l level) Session() *txscope.Session { return l.session.Session }

func (l level) Open() bool { return !l.done.Load() && !l.session.Ending() }

// TxFrom is the innermost transaction that ctx carries and that is still open,
// of whatever db. [WithTx], [Adapter.Begin] and so [outbox.InTx] put one there.
func TxFrom(ctx context.Context) (bun.Tx, bool) {
	l, ok := txscope.LevelFrom[level](ctx, nil)
	return l.tx, ok
}

// TxFrom is the innermost transaction of the adapter's db that ctx carries and
// that is still open.
func (a *Adapter) TxFrom(ctx context.Context) (bun.Tx, bool) {
	l, ok := txscope.LevelFrom[level](ctx, a.hook.source)
	return l.tx, ok
}

// WithTx returns a context that carries the transaction, so that code below
// finds it with [TxFrom] and can write with nothing but the outbox's writer. The
// result is ctx when the transaction is not one that the adapter can write in.
func WithTx(ctx context.Context, tx bun.Tx) context.Context {
	s := sessionOf(tx)
	if s == nil || !s.learn(tx) {
		return ctx
	}
	return contextWithLevel(ctx, level{tx: tx, session: s, done: new(atomic.Bool)})
}

func contextWithLevel(ctx context.Context, l level) context.Context {
	if l.session.hook.session(ctx) != l.session {
		ctx = context.WithValue(ctx, sessionKey{l.session.hook}, l.session)
	}
	return txscope.ContextWithLevel(ctx, l)
}
