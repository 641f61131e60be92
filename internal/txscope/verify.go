package txscope

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/outboxkit/outbox-go/internal/sqlerr"
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
// and then decides its fate. When the database does not tell, as while the rows of
// another statement are unread, it is asked again the next time; what was written
// is of unknown outcome if it never tells.
func (s *Scope) Verify(ctx context.Context) { _ = s.verify(ctx) }

// verify is Verify. It returns why it could not find out: then nothing may be
// written, for it could commit by itself.
func (s *Scope) verify(ctx context.Context) error {
	if s.suspect.Load() == nil {
		return nil
	}
	if e, ok := s.execer.(sessionExecer); ok && e.s.execer() == nil {
		return nil // later, when the transaction is known
	}
	why := s.suspect.Swap(nil)
	if why == nil || s.execer == nil || !s.Active() {
		return nil
	}
	ctx = context.WithoutCancel(ctx)
	gone, err := Gone(s.dialect, func(query string) error {
		_, err := s.execer.ExecContext(ctx, query)
		return err
	})
	s.unsure.Store(err != nil)
	switch {
	case err != nil:
		s.suspect.CompareAndSwap(nil, why)
		return fmt.Errorf("outbox: asking the database whether the transaction still exists: %w", err)
	case gone:
		s.decide(why.outcome, fmt.Errorf("outbox: the database has ended the transaction: %w", why.err))
	}
	return nil
}

// Gone asks the database whether the transaction is gone in which exec runs
// statements, in words that change nothing. An error is that of a database which
// did not tell.
func Gone(dialect string, exec func(query string) error) (gone bool, err error) {
	const savepoint, release = "SAVEPOINT outbox_alive", "RELEASE SAVEPOINT outbox_alive"
	switch dialect {
	case MySQL:
		// Outside of a transaction a savepoint goes with the statement that made
		// it.
		if err = exec(savepoint); err == nil {
			err = exec(release)
		}
		gone = sqlerr.HasNumber(err, 1305) // no such savepoint
		if gone || errors.Is(err, sql.ErrTxDone) {
			err = nil
		}
		return gone, err
	case Postgres:
		if err = exec(savepoint); err == nil {
			_ = exec(release)
		}
		gone = sqlerr.HasState(err, "25P01") // no active transaction
		if gone || sqlerr.HasState(err, "25P02") || errors.Is(err, sql.ErrTxDone) {
			err = nil // else it has failed, or somebody has ended it
		}
		return gone, err
	case SQLite:
		if exec("BEGIN") != nil { // within a transaction it is refused
			return false, nil
		}
		_ = exec("ROLLBACK")
		return true, nil
	default:
		return false, nil
	}
}
