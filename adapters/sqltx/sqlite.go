package sqltx

import (
	"context"

	"github.com/outboxkit/outbox-go/outbox/txscope"
)

// askSQLite finds out, after a failed statement, whether the transaction still
// exists. SQLite ends it because of INSERT OR ROLLBACK, of a full disk, or of a
// context that interrupted a writing statement, and does not say so; what is
// executed then commits by itself. Within a transaction it refuses BEGIN.
func askSQLite(ctx context.Context, scope *txscope.Scope, exec func(ctx context.Context, query string) error) {
	if !scope.Active() {
		return
	}
	ctx = context.WithoutCancel(ctx)
	if exec(ctx, "BEGIN") != nil {
		return
	}
	const undo = "ROLLBACK"
	scope.Observe(ctx, undo, exec(ctx, undo))
}
