package sqlstore

import (
	"context"
	"time"

	"github.com/outboxkit/outbox-go/internal/sqlerr"
)

// deadlockTries is how often the store tries a statement that the database picks as the victim of a
// deadlock, or whose table another process changes.
const deadlockTries = 5

// Tries of a statement that fails at once when a row is locked, as lockNow makes it.
const (
	lockPatience = time.Second // in all, as with lockWait
	lockMinPause = time.Millisecond
	lockMaxPause = 50 * time.Millisecond

	// MySQL's errors.
	lockNotFree  = 3572
	tableChanged = 1412 // by a migration, after the transaction had begun
)

// changed runs a statement or transaction that has no effect when it fails. After a deadlock,
// changed runs it again: two nodes may lock the same rows in different orders. The same goes for a
// table that another process migrated since the transaction began. When a row is locked and the
// statement did not wait for the lock, changed also runs the statement again, for a while.
//
// On SQLite the store's own statements take turns. SQLite allows a single writer. A second writer
// sleeps for milliseconds and tries again, even if the first writer is done sooner.
func (s *Store) changed(ctx context.Context, run func() (int, error)) (n int, err error) {
	if s.d == sqlite {
		select {
		case s.turn <- struct{}{}:
			defer func() { <-s.turn }()
		case <-ctx.Done(): // the statement fails with ctx's error
		}
	}
	began, pause := time.Now(), lockMinPause
	for tries := 1; ; {
		n, err = run()
		switch {
		case err == nil || ctx.Err() != nil:
			return n, err
		case (sqlerr.IsDeadlock(err) || sqlerr.HasNumber(err, tableChanged)) && tries < deadlockTries:
			tries++
		case sqlerr.HasNumber(err, lockNotFree) && time.Since(began) < lockPatience:
			select {
			case <-time.After(pause):
			case <-ctx.Done():
			}
			pause = min(2*pause, lockMaxPause)
		default:
			return n, err
		}
	}
}
