package sqlstore

import (
	"context"
	"errors"

	"github.com/outboxkit/outbox-go/outbox/txscope"
)

// deadlockTries is how often a statement of the store's own is tried when the
// database picks it as the victim of a deadlock.
const deadlockTries = 5

// changed runs a statement, or a transaction, that the database undoes as a
// whole when it fails, and runs it again after a deadlock: two nodes may come
// upon the same rows in different orders.
func changed(ctx context.Context, run func() (int, error)) (n int, err error) {
	for range deadlockTries {
		if n, err = run(); err == nil || !deadlocked(err) || ctx.Err() != nil {
			break
		}
	}
	return n, err
}

// deadlocked knows the errors of the drivers by their methods, importing none.
func deadlocked(err error) bool {
	var withState interface{ SQLState() string }    // pgx, lib/pq
	var withField interface{ Field(k byte) string } // pgdriver
	switch {
	case errors.As(err, &withState):
		return undone(withState.SQLState())
	case errors.As(err, &withField):
		return undone(withField.Field('C'))
	default:
		return txscope.IsDeadlock(err)
	}
}

// undone are PostgreSQL's deadlock and, where a session's default isolation is
// stricter than read committed, its failure to serialize.
func undone(state string) bool { return state == "40P01" || state == "40001" }
