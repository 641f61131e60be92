package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"strings"

	"github.com/outboxkit/outbox-go/internal/sqlerr"
	"github.com/outboxkit/outbox-go/outbox"
)

var errAutocommit = errors.New("autocommit is off, so that the outbox's own statements would not be committed; remove autocommit=0 from the DSN, and from init_connect and autocommit of the server")

var errChain = errors.New("completion_type is CHAIN, so that each COMMIT begins another transaction and the outbox's own statements would not be committed; remove completion_type from the DSN, and from init_connect and the settings of the server")

// readCommitted is the level of the store's own transactions where the session has a stricter
// level.
var readCommitted = &sql.TxOptions{Isolation: sql.LevelReadCommitted}

// checkSession asks for the settings of a session that matter, and refuses settings under which the
// outbox's statements would have no effect.
func (s *Store) checkSession(ctx context.Context, db outbox.DB, d *dialect) error {
	switch d {
	case nil, sqlite:
		return nil
	case postgres:
		level, err := answer(ctx, db, "SHOW default_transaction_isolation")
		s.strict.Store(level == "serializable" || level == "repeatable read")
		return err
	}
	rows, err := db.QueryContext(ctx, "SHOW SESSION VARIABLES WHERE Variable_name IN ('autocommit', 'completion_type', 'transaction_isolation', 'tx_isolation')")
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			return err
		}
		switch {
		case strings.EqualFold(name, "autocommit") && !strings.EqualFold(value, "ON") && value != "1":
			return errAutocommit
		case strings.EqualFold(name, "completion_type") && (strings.EqualFold(value, "CHAIN") || value == "1"):
			return errChain
		case strings.HasSuffix(name, "_isolation"):
			s.strict.Store(value == "SERIALIZABLE")
		}
	}
	return rows.Err()
}

// errTried ends the transaction of an INSERT that was only tried.
var errTried = errors.New("tried")

// tryInsert runs an INSERT of no rows. The database still refuses the statement when a column is
// missing, when the server or the session is read-only, without the privilege, and, at the level of
// claims, with MySQL's binlog_format STATEMENT.
func (s *Store) tryInsert(ctx context.Context, db outbox.DB, what string, claims bool) error {
	q := s.query(512).add("INSERT INTO ").table(s).add(" (", eventColumns, ") SELECT ", eventColumns, " FROM ").table(s).add(" WHERE 1 = 0")
	insert := func(db outbox.Execer) error {
		_, err := s.exec(ctx, db, what, q)
		return err
	}
	var err error
	if claims && s.d.name == "mysql" {
		// errTried rolls the transaction back. An error of the INSERT aborts the transaction, too.
		if err = s.inTx(ctx, db, what, readCommitted, func(tx *sql.Tx) error {
			if err := insert(tx); err != nil {
				return err
			}
			return errTried
		}); errors.Is(err, errTried) {
			err = nil
		}
	} else {
		_, err = s.changed(ctx, func() (int, error) { return 0, insert(db) })
	}
	if sqlerr.IsDeadlock(err) || err != nil && s.d == sqlite && strings.Contains(err.Error(), "SQLITE_BUSY") {
		return nil // another process is writing, so the table can be written
	}
	return err
}
