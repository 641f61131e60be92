package conformance

import (
	"context"
	"database/sql"
	"database/sql/driver"
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

// SQLHarness makes the harness of a store whose table, with the columns of the specification, is in
// db. The table is the store's Table() if the store has such a method, else outbox_event. The table
// must exist and be empty. The pool must allow several connections, because the suite holds
// transactions open.
func SQLHarness(store outbox.Store, db *sql.DB, dialect Dialect) StoreHarness {
	h := sqlHarness{db: db, dialect: dialect, table: "outbox_event"}
	if named, ok := store.(interface{ Table() string }); ok {
		h.table = named.Table()
	}
	harness := StoreHarness{
		Store: store, DB: db, Table: h.table,
		Begin: h.begin, Row: h.row, SetRow: h.setRow, Spoil: h.spoil(), SpoilLease: h.spoilLease(),
		NullType: func(t testing.TB, eventID string) {
			t.Helper()
			h.exec(t, "UPDATE "+h.table+" SET aggregate_type = NULL WHERE event_id = ?", eventID)
		},
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
	query := "SELECT status, attempts, last_error, locked_by, " + h.micros("available_at") + ", " + h.micros("created_at") + ", " +
		h.micros("done_at") + ", " + h.micros("locked_at") + " FROM " + h.table + " WHERE event_id = ?"
	var row RawRow
	var lastError, lockedBy sql.NullString
	var available, created, done, locked sql.NullInt64
	err := h.db.QueryRowContext(t.Context(), h.bind(query), eventID).Scan(&row.Status, &row.Attempts,
		&lastError, &lockedBy, &available, &created, &done, &locked)
	if errors.Is(err, sql.ErrNoRows) {
		return RawRow{}, false
	}
	if err != nil {
		t.Fatalf("reading the row of event %s: %v", eventID, err)
	}
	row.LastError, row.LockedBy = lastError.String, lockedBy.String
	row.AvailableAt, row.CreatedAt, row.DoneAt, row.LockedAt = timeOf(available), timeOf(created), timeOf(done), timeOf(locked)
	return row, true
}

func (h sqlHarness) setRow(t testing.TB, eventID string, row RawRow) {
	t.Helper()
	at := map[Dialect]string{
		Postgres: "TIMESTAMPTZ 'epoch' + CAST(? AS bigint) * INTERVAL '1 microsecond'",
		MySQL:    "CAST('1970-01-01' AS DATETIME(6)) + INTERVAL ? MICROSECOND",
		SQLite:   "?",
	}[h.dialect]
	h.exec(t, "UPDATE "+h.table+" SET status = ?, attempts = ?, last_error = ?, locked_by = ?, available_at = "+at+
		", created_at = "+at+", done_at = "+at+", locked_at = "+at+" WHERE event_id = ?", int(row.Status), row.Attempts,
		sql.NullString{String: row.LastError, Valid: row.LastError != ""}, sql.NullString{String: row.LockedBy, Valid: row.LockedBy != ""},
		microsOf(row.AvailableAt), microsOf(row.CreatedAt), microsOf(row.DoneAt), microsOf(row.LockedAt), eventID)
}

// spoil are ways to give a column a value that only another program writes. Some values need a
// table without the NOT NULL of the column, or a session of MySQL that is not strict.
func (h sqlHarness) spoil() map[string]func(t testing.TB, eventID string) {
	ways := map[string]string{
		"headers":           `headers = '{"list": ["no", "string"]}'`,
		"attempts negative": "attempts = -1",
		"attempts huge":     "attempts = 2147483647",
	}
	nulls := map[string]string{}
	switch h.dialect {
	case Postgres:
		ways["created_at infinity"] = "created_at = 'infinity'"
		ways["created_at -infinity"] = "created_at = '-infinity'"
		ways["available_at -infinity"] = "available_at = '-infinity'"
		ways["created_at BC"] = "created_at = '4713-01-01 BC'"
		ways["available_at BC"] = "available_at = '0001-01-01 BC'"
		ways["created_at far"] = "created_at = '200000-01-01'"
		for _, column := range []string{"event_type", "payload", "attempts"} { // created_at may be in the primary key
			nulls[column] = "ALTER COLUMN " + column + " DROP NOT NULL"
		}
	case MySQL:
		ways["created_at zero"] = "created_at = '0000-00-00'"
		ways["available_at zero"] = "available_at = '0000-00-00'"
		ways["created_at day zero"] = "created_at = '2024-03-00 10:00:00'"
		nulls["event_type"] = "MODIFY event_type VARCHAR(128) NULL"
		nulls["payload"] = "MODIFY payload LONGTEXT NULL"
		nulls["attempts"] = "MODIFY attempts INT NULL"
		nulls["created_at"] = "MODIFY created_at DATETIME(6) NULL"
	case SQLite:
		ways["created_at text"] = "created_at = '2024-03-05 10:20:30'"
		ways["created_at bytes"] = "created_at = x'00ff'"
		ways["created_at float"] = "created_at = 0.5"
		ways["created_at far"] = "created_at = 9000000000000000000"
		ways["available_at text"] = "available_at = 'abc'"
		ways["available_at bytes"] = "available_at = x'00ff'"
		ways["available_at float"] = "available_at = 1.5"
		ways["available_at far"] = "available_at = -9000000000000000000"
		ways["attempts text"] = "attempts = 'abc'"
		ways["attempts bytes"] = "attempts = x'01'"
		ways["attempts float"] = "attempts = 1.5"
		ways["attempts far"] = "attempts = 9000000000000000000"
	}
	spoil := map[string]func(t testing.TB, eventID string){}
	for name, set := range ways {
		spoil[name] = func(t testing.TB, eventID string) { h.spoilRow(t, set, eventID) }
	}
	for column, alter := range nulls {
		spoil[column+" NULL"] = func(t testing.TB, eventID string) {
			t.Helper()
			h.execLoose(t, "ALTER TABLE "+h.table+" "+alter)
			h.spoilRow(t, column+" = NULL", eventID)
		}
	}
	return spoil
}

// spoilLease are ways to give locked_at a value that only another program writes.
func (h sqlHarness) spoilLease() map[string]func(t testing.TB, eventID string) {
	values := map[Dialect][]string{
		Postgres: {"'infinity'", "'-infinity'", "'4713-01-01 BC'", "'200000-01-01'"},
		MySQL:    {"'0000-00-00'", "'2024-03-00 10:00:00'", "'9999-12-31 23:59:59'"},
		SQLite:   {"'abc'", "x'00ff'", "0.5", "9000000000000000000", "-9000000000000000000"},
	}
	spoil := map[string]func(t testing.TB, eventID string){}
	for _, value := range values[h.dialect] {
		spoil["locked_at "+value] = func(t testing.TB, eventID string) { h.spoilRow(t, "locked_at = "+value, eventID) }
	}
	return spoil
}

// spoilRow sets a column of a row to a value.
func (h sqlHarness) spoilRow(t testing.TB, set, eventID string) {
	t.Helper()
	h.execLoose(t, "UPDATE "+h.table+" SET "+set+" WHERE event_id = ?", eventID)
}

// execLoose runs a statement in a session of MySQL that is not strict, on a connection that is not
// used afterwards. An ALTER TABLE that copies the table also copies rows that were spoilt before.
func (h sqlHarness) execLoose(t testing.TB, query string, args ...any) {
	t.Helper()
	conn, err := h.db.Conn(t.Context())
	if err != nil {
		t.Fatalf("spoiling a row: %v", err)
	}
	defer func() { _ = conn.Raw(func(any) error { return driver.ErrBadConn }) }()
	if h.dialect == MySQL {
		if _, err := conn.ExecContext(t.Context(), "SET SESSION sql_mode = ''"); err != nil {
			t.Fatalf("spoiling a row: %v", err)
		}
	}
	if _, err := conn.ExecContext(t.Context(), h.bind(query), args...); err != nil {
		t.Fatalf("spoiling a row: %v", err)
	}
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

// micros reads a time as microseconds since 1970, so that no driver interprets it.
func (h sqlHarness) micros(column string) string {
	switch h.dialect {
	case Postgres: // exact, also where EXTRACT returns a double
		return "CAST(EXTRACT(EPOCH FROM date_trunc('second', " + column + ")) AS bigint) * 1000000 + " +
			"CAST(EXTRACT(MICROSECONDS FROM " + column + ") AS bigint) % 1000000"
	case MySQL:
		return "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', " + column + ")"
	case SQLite:
	}
	return column
}

// microsOf is the argument for a time; the zero time is NULL.
func microsOf(at time.Time) sql.NullInt64 {
	return sql.NullInt64{Int64: at.UnixMicro(), Valid: !at.IsZero()}
}

func timeOf(micros sql.NullInt64) time.Time {
	if !micros.Valid {
		return time.Time{}
	}
	return time.UnixMicro(micros.Int64).UTC()
}
