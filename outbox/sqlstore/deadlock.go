package sqlstore

import (
	"context"

	"github.com/outboxkit/outbox-go/internal/sqlerr"
)

// deadlockTries is how often the store tries a statement that the database picks
// as a deadlock's victim.
const deadlockTries = 5

// changed runs a statement or transaction that has no effect when it fails, and
// runs it again after a deadlock: two nodes may lock the same rows in different
// orders.
//
// On SQLite the store's own statements take turns. SQLite has one writer. It lets a second
// one sleep for milliseconds and try again, also when the first is done sooner.
func (s *Store) changed(ctx context.Context, run func() (int, error)) (n int, err error) {
	if s.d == sqlite {
		select {
		case s.turn <- struct{}{}:
			defer func() { <-s.turn }()
		case <-ctx.Done(): // the statement fails with that
		}
	}
	for range deadlockTries {
		if n, err = run(); err == nil || !sqlerr.IsDeadlock(err) || ctx.Err() != nil {
			break
		}
	}
	return n, err
}
