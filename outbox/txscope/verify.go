package txscope

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// Suspect takes note of an error after which the transaction may be gone, so
// that what is executed next commits by itself. The scope finds out before the
// next write, and a [Session] before COMMIT. It does so by itself where the
// database does not say: SQLite ends a transaction because of INSERT OR ROLLBACK,
// of a full disk, or of a context that interrupted a writing statement.
func (s *Scope) Suspect(err error) { s.suspect.CompareAndSwap(nil, &err) }

// Verify finds out what became of the transaction when something is suspected,
// and then decides its fate.
func (s *Scope) Verify(ctx context.Context) {
	if s.suspect.Load() == nil {
		return
	}
	why := s.suspect.Swap(nil)
	if why == nil || s.execer == nil || !s.Active() || !s.gone(context.WithoutCancel(ctx)) {
		return
	}
	s.Doom(fmt.Errorf("outbox: the database has ended the transaction: %w", *why))
}

// gone asks the database, in words that change nothing.
func (s *Scope) gone(ctx context.Context) bool {
	exec := func(query string) error {
		_, err := s.execer.ExecContext(ctx, query)
		return err
	}
	switch s.dialect {
	case MySQL:
		// Outside of a transaction a savepoint goes with the statement that made
		// it.
		err := exec("SAVEPOINT outbox_alive")
		if err == nil {
			err = exec("RELEASE SAVEPOINT outbox_alive")
		}
		return err != nil && !errors.Is(err, sql.ErrTxDone)
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
