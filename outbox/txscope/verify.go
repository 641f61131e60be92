package txscope

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// suspicion is why the transaction may be gone, and what then became of it.
type suspicion struct {
	outcome Outcome
	err     error
}

// Suspect takes note of an error, or a statement, after which the transaction
// may be gone, so that what is executed next commits by itself: if it is, that
// was its outcome. The scope finds out before the next write, and a [Session]
// before COMMIT. It suspects by itself where the database does not say: SQLite
// ends a transaction because of INSERT OR ROLLBACK, of a full disk, or of a
// context that interrupted a writing statement, and MySQL because of a lock
// timeout when innodb_rollback_on_timeout is set.
func (s *Scope) Suspect(outcome Outcome, err error) {
	s.suspect.CompareAndSwap(nil, &suspicion{outcome, err})
}

// Verify finds out what became of the transaction when something is suspected,
// and then decides its fate.
func (s *Scope) Verify(ctx context.Context) {
	if s.suspect.Load() == nil {
		return
	}
	if e, ok := s.execer.(sessionExecer); ok && e.s.execer() == nil {
		return // later, when the transaction is known
	}
	why := s.suspect.Swap(nil)
	if why == nil || s.execer == nil || !s.Active() {
		return
	}
	ctx = context.WithoutCancel(ctx)
	if Gone(s.dialect, func(query string) error {
		_, err := s.execer.ExecContext(ctx, query)
		return err
	}) {
		s.decide(why.outcome, fmt.Errorf("outbox: the database has ended the transaction: %w", why.err))
	}
}

// Gone asks the database whether the transaction is gone in which exec runs
// statements, in words that change nothing.
func Gone(dialect string, exec func(query string) error) bool {
	const savepoint, release = "SAVEPOINT outbox_alive", "RELEASE SAVEPOINT outbox_alive"
	switch dialect {
	case MySQL:
		// Outside of a transaction a savepoint goes with the statement that made
		// it.
		err := exec(savepoint)
		if err == nil {
			err = exec(release)
		}
		return err != nil && !errors.Is(err, sql.ErrTxDone)
	case Postgres:
		err := exec(savepoint)
		if err == nil {
			_ = exec(release)
		}
		return hasState(err, "25P01") // no active transaction
	case SQLite:
		if exec("BEGIN") != nil { // within a transaction it is refused
			return false
		}
		_ = exec("ROLLBACK")
		return true
	default:
		return false
	}
}
