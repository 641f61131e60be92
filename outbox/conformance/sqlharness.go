package conformance

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// Dialect says how [SQLHarness] reads and writes the table.
type Dialect string

// The dialects.
const (
	Postgres Dialect = "postgres" // TIMESTAMPTZ, $1
	MySQL    Dialect = "mysql"    // DATETIME(6) in UTC, ?
	SQLite   Dialect = "sqlite"   // INTEGER microseconds since 1970, ?
)

// DefaultTable is the table that [SQLHarness] uses when the store does not name
// one.
const DefaultTable = "outbox_event"

// SQLHarness makes the harness of a store whose table, with the columns of the
// specification, is in db. The table is the store's Table() if it has such a
// method, else [DefaultTable]; it must exist and be empty. The pool must allow
// several connections, because the suite holds transactions open.
func SQLHarness(store outbox.Store, db *sql.DB, dialect Dialect) StoreHarness {
	h := sqlHarness{db: db, dialect: dialect, table: DefaultTable}
	if named, ok := store.(interface{ Table() string }); ok {
		h.table = named.Table()
	}
	harness := StoreHarness{
		Store: store, DB: db, Table: h.table,
		Begin: h.begin, Row: h.row, SetRow: h.setRow, CorruptHeaders: h.corruptHeaders,
		SingleWriter: dialect == SQLite,
	}
	if dialect != SQLite {
		harness.LockRow = h.lockRow
	}
	return harness
}

type sqlHarness struct {
	db      *sql.DB
	dialect Dialect
	table   string
}

func (h sqlHarness) begin(t testing.TB) (tx outbox.Execer, commit, rollback func() error) {
	t.Helper()
	// Not the test's context: database/sql would roll back when it ends.
	sqlTx, err := h.db.BeginTx(context.Background(), nil)
	if err != nil {
		t.Fatalf("beginning a transaction: %v", err)
	}
	t.Cleanup(func() { _ = sqlTx.Rollback() })
	return sqlTx, sqlTx.Commit, sqlTx.Rollback
}

func (h sqlHarness) row(t testing.TB, eventID string) (RawRow, bool) {
	t.Helper()
	// Times leave the database as text, so that no driver interprets them.
	query := "SELECT status, attempts, " + h.timeText("available_at") + ", " + h.timeText("created_at") + ", " +
		h.timeText("done_at") + ", last_error, locked_by, " + h.timeText("locked_at") +
		" FROM " + h.table + " WHERE event_id = ?"
	var row RawRow
	var available, created, done, locked, lastError, lockedBy sql.NullString
	err := h.db.QueryRowContext(t.Context(), h.bind(query), eventID).Scan(&row.Status, &row.Attempts,
		&available, &created, &done, &lastError, &lockedBy, &locked)
	if errors.Is(err, sql.ErrNoRows) {
		return RawRow{}, false
	}
	if err != nil {
		t.Fatalf("reading the row of event %s: %v", eventID, err)
	}
	row.AvailableAt, row.CreatedAt = h.parseTime(t, available), h.parseTime(t, created)
	row.DoneAt, row.LockedAt = h.parseTime(t, done), h.parseTime(t, locked)
	row.LastError, row.LockedBy = lastError.String, lockedBy.String
	return row, true
}

func (h sqlHarness) setRow(t testing.TB, eventID string, row RawRow) {
	t.Helper()
	at := "?"
	if h.dialect == Postgres {
		at = "CAST(CAST(? AS text) AS timestamptz)"
	}
	h.exec(t, "UPDATE "+h.table+" SET status = ?, attempts = ?, available_at = "+at+", created_at = "+at+", done_at = "+at+
		", last_error = ?, locked_by = ?, locked_at = "+at+" WHERE event_id = ?",
		int(row.Status), row.Attempts, h.timeArg(row.AvailableAt), h.timeArg(row.CreatedAt), h.timeArg(row.DoneAt),
		sql.NullString{String: row.LastError, Valid: row.LastError != ""},
		sql.NullString{String: row.LockedBy, Valid: row.LockedBy != ""}, h.timeArg(row.LockedAt), eventID)
}

func (h sqlHarness) corruptHeaders(t testing.TB, eventID string) {
	t.Helper()
	h.exec(t, "UPDATE "+h.table+` SET headers = '{"list": ["no", "string"]}' WHERE event_id = ?`, eventID)
}

func (h sqlHarness) lockRow(t testing.TB, eventID string) (unlock func()) {
	t.Helper()
	tx, err := h.db.BeginTx(context.Background(), nil)
	if err != nil {
		t.Fatalf("beginning a transaction: %v", err)
	}
	unlock = func() { _ = tx.Rollback() }
	t.Cleanup(unlock)
	var id string
	query := "SELECT event_id FROM " + h.table + " WHERE event_id = ? FOR UPDATE"
	if err := tx.QueryRowContext(t.Context(), h.bind(query), eventID).Scan(&id); err != nil {
		t.Fatalf("locking the row of event %s: %v", eventID, err)
	}
	return unlock
}

func (h sqlHarness) exec(t testing.TB, query string, args ...any) {
	t.Helper()
	if _, err := h.db.ExecContext(t.Context(), h.bind(query), args...); err != nil {
		t.Fatalf("changing a row without the store: %v", err)
	}
}

// bind writes the placeholders of a query, question marks, as the dialect does.
func (h sqlHarness) bind(query string) string {
	for n := 1; h.dialect == Postgres && strings.Contains(query, "?"); n++ {
		query = strings.Replace(query, "?", fmt.Sprintf("$%d", n), 1)
	}
	return query
}

const harnessTime = "2006-01-02 15:04:05.000000"

func (h sqlHarness) timeText(column string) string {
	switch h.dialect {
	case Postgres:
		return "to_char(" + column + " AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US')"
	case MySQL:
		return "DATE_FORMAT(" + column + ", '%Y-%m-%d %H:%i:%s.%f')"
	case SQLite:
	}
	return "CAST(" + column + " AS TEXT)"
}

// timeArg is an argument for a time; the zero time is NULL.
func (h sqlHarness) timeArg(at time.Time) any {
	switch {
	case at.IsZero():
		return nil
	case h.dialect == SQLite:
		return at.UnixMicro()
	case h.dialect == Postgres:
		return at.UTC().Format(harnessTime) + "+00"
	default:
		return at.UTC().Format(harnessTime)
	}
}

func (h sqlHarness) parseTime(t testing.TB, text sql.NullString) time.Time {
	t.Helper()
	if !text.Valid {
		return time.Time{}
	}
	if h.dialect == SQLite {
		var micros int64
		if _, err := fmt.Sscan(text.String, &micros); err != nil {
			t.Fatalf("reading a time: %q is no number of microseconds", text.String)
		}
		return time.UnixMicro(micros).UTC()
	}
	at, err := time.ParseInLocation(harnessTime, text.String, time.UTC)
	if err != nil {
		t.Fatalf("reading a time: %v", err)
	}
	return at
}
