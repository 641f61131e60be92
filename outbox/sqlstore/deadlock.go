package sqlstore

import (
	"context"

	"github.com/outboxkit/outbox-go/internal/sqlerr"
)

// deadlockTries is how often a statement of the store's own is tried when the
// database picks it as the victim of a deadlock.
const deadlockTries = 5

// changed runs a statement, or a transaction, that the database undoes as a
// whole when it fails, and runs it again after a deadlock: two nodes may come
// upon the same rows in different orders.
func changed(ctx context.Context, run func() (int, error)) (n int, err error) {
	for range deadlockTries {
		if n, err = run(); err == nil || !sqlerr.IsDeadlock(err) || ctx.Err() != nil {
			break
		}
	}
	return n, err
}
