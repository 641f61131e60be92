package txscope

import (
	"context"

	"github.com/outboxkit/outbox-go/outbox"
)

// Level is an adapter's own kind of transaction, or of savepoint in one, as a
// context carries it.
type Level interface {
	Session() *Session
	// Open reports whether this level has not ended.
	Open() bool
}

type levelsKey[L Level] struct{}

// levels is the list of one adapter's levels in a context, innermost first.
type levels[L Level] struct {
	level L
	outer *levels[L]
}

// ContextWithLevel returns a context that carries the level beside the others
// of its type that ctx has, and the transaction's scope for the outbox's writer.
func ContextWithLevel[L Level](ctx context.Context, level L) context.Context {
	outer, _ := ctx.Value(levelsKey[L]{}).(*levels[L])
	ctx = context.WithValue(ctx, levelsKey[L]{}, &levels[L]{level: level, outer: outer})
	scope := level.Session().Scope()
	if found, ok := outbox.ScopeFromContext(ctx, scope.Source()); ok && found == outbox.TxScope(scope) {
		return ctx // a savepoint: the scope is the transaction's
	}
	return outbox.ContextWithScope(ctx, scope)
}

// LevelFrom is the innermost open level in ctx of that source, or of any when
// source is nil.
func LevelFrom[L Level](ctx context.Context, source any) (level L, ok bool) {
	for l, _ := ctx.Value(levelsKey[L]{}).(*levels[L]); l != nil; l = l.outer {
		if (source == nil || l.level.Session().Scope().Source() == source) && l.level.Open() {
			return l.level, true
		}
	}
	return level, false
}
