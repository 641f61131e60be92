package txscope

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/outboxkit/outbox-go/internal/sqlerr"
)

// suspicion says why the transaction may be gone, and how the transaction then ended.
type suspicion struct {
	end End
	err error
}

// suspectEnd notes an error after which the transaction may be gone, so that the next statement
// would commit by itself. The database does not report such an end: SQLite ends a transaction
// because of INSERT OR ROLLBACK, of a full disk, or of a context that interrupted a writing
// statement; MySQL because of a lock timeout when innodb_rollback_on_timeout is set.
func (s *Scope) suspectEnd(end End, err error) {
	s.suspect.CompareAndSwap(nil, &suspicion{end, err})
}

// Verify asks the database whether the transaction still exists, when that is in doubt. The
// database cannot answer while the rows of another statement are unread: Verify then asks again the
// next time, and the writes have an unknown end if the database never answers.
func (s *Scope) Verify(ctx context.Context) {
	why := s.suspect.Swap(nil)
	if why == nil || !s.Active() {
		return
	}
	ctx = context.WithoutCancel(ctx)
	gone, err := Gone(s.dialect, func(query string) error { return s.exec(ctx, query) })
	s.unsure.Store(err != nil)
	switch {
	case err != nil:
		s.suspect.CompareAndSwap(nil, why)
	case gone:
		s.decide(why.end, fmt.Errorf("outbox: the database has ended the transaction: %w", why.err))
	}
}

// Gone asks the database whether the transaction in which exec runs statements is gone. The
// question changes nothing. An error means that the database did not answer.
func Gone(dialect string, exec func(query string) error) (gone bool, err error) {
	const savepoint, release = "SAVEPOINT outbox_alive", "RELEASE SAVEPOINT outbox_alive"
	switch dialect {
	case MySQL:
		// Outside of a transaction a savepoint ends with the statement that made
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
			err = nil // the transaction has failed, or other code has ended it
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
