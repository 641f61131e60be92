package sqlstore

import (
	"context"
	"fmt"
	"strings"

	"github.com/outboxkit/outbox-go/internal/sqlerr"
	"github.com/outboxkit/outbox-go/outbox"
)

// constructors are the constructors of stores by the names of their dialects.
var constructors = map[string]string{"postgres": "sqlstore.Postgres()", "mysql": "sqlstore.MySQL()", "sqlite": "sqlstore.SQLite()"}

// Check implements [outbox.Store]. Check runs a few statements, which read at most one row and
// change no row.
func (s *Store) Check(ctx context.Context, db outbox.DB, claims bool) error {
	const what = "checking the database"
	if s.err != nil {
		return s.err
	}
	d, version, err := ask(ctx, db)
	switch {
	case err != nil:
		return s.fail(what, err)
	case d != nil && d.name != s.d.name:
		return s.fail(what, fmt.Errorf("it is %s, and the store is %s: use %s, or sqlstore.Detect",
			shortVersion(version), constructors[s.d.name], constructors[d.name]))
	case d == postgres:
		if err := s.checkPooler(ctx, db); err != nil {
			return s.fail(what, err)
		}
	case d == sqlite:
		if err := s.checkMemory(ctx, db); err != nil {
			return s.fail(what, err)
		}
	}
	s.learn(version)
	path := ""
	if s.asks() {
		if path, err = s.find(ctx, db); err != nil {
			return err
		}
	}
	if err := s.checkSession(ctx, db, d); err != nil {
		return s.fail(what, err)
	}
	if err := s.tryInsert(ctx, db, what, claims); err != nil {
		if path != "" && s.found.Load() == nil {
			err = fmt.Errorf("%w; the table is not in %s", err, path)
		}
		return err
	}
	row, err := s.readVersion(ctx, db, what)
	if err != nil {
		return err
	}
	if err := s.fits(row); err != nil {
		return s.fail(what, err)
	}
	if s.hasOption(uniqueIndex) {
		return s.checkIndex(ctx, db, uniqueIndex, "Envelope.UniqueKey", "WithUniqueIndex()")
	}
	return nil
}

// The columns that the store reads and writes.
const (
	eventColumns = "event_id, event_type, aggregate_type, aggregate_id, tenant_id, payload, headers, status, attempts," +
		" available_at, created_at, done_at, last_error, locked_by, locked_at"
	controlColumns = "kind, name, owner, value, expires_at"
)

// shortVersion is the version without build details.
func shortVersion(version string) string {
	version, _, _ = strings.Cut(version, " on ")
	return fmt.Sprintf("%.60s", version)
}

// wayOut says how to add a missing table or column, or how to get through a pooler;
// empty for other errors.
func (s *Store) wayOut(err error) string {
	switch {
	case s.table.Schema != "" && s.isOneOf(err, "3F000", 1049, ".sqlite_master"):
		return "; create the schema " + s.table.Schema + " first, or change the name of the table"
	case s.d == postgres && sqlerr.HasState(err, "3F000"):
		return "; create a schema of the connection's search_path first, or correct the search_path"
	case s.isOneOf(err, "42P01", 1146, "no such table"):
		return s.createWayOut()
	case s.isOneOf(err, "25006", 1290, "readonly") || sqlerr.HasNumber(err, 1792) || sqlerr.HasNumber(err, 1836):
		return "; the server or the session is read-only: give the outbox the address of the primary, and connections without default_transaction_read_only, read_only, mode=ro or query_only"
	case s.d.name == "mysql" && sqlerr.HasNumber(err, 1665):
		return "; set binlog_format of the server to ROW or MIXED"
	case s.isOneOf(err, "42703", 1054, "no such column"), s.d == sqlite && strings.Contains(err.Error(), "has no column named"):
		return "; add the column as " + s.files() + " have it: it belongs to the version of the table, so that no migration adds it"
	case s.d == postgres && isLostStatement(err):
		return poolerWayOut
	default:
		return ""
	}
}

// createWayOut says how to create the tables.
func (s *Store) createWayOut() string {
	return "; create the tables with the command " + s.command("create") + ", with store.CreateSchema(ctx, db), with create-schema: true in the fx configuration, or with " + s.files()
}

func (s *Store) files() string { return "the SQL files in outbox/sqlstore/schema/" + s.d.name }

// isOneOf reports whether the error has the given SQLSTATE, MySQL number or SQLite text, by the
// store's dialect.
func (s *Store) isOneOf(err error, state string, number uint16, text string) bool {
	switch s.d.name {
	case "postgres":
		return sqlerr.HasState(err, state)
	case "mysql":
		return sqlerr.HasNumber(err, number)
	default:
		return strings.Contains(err.Error(), text)
	}
}
