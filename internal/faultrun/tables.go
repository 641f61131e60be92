package faultrun

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/outboxkit/outbox-go/inbox"
	"github.com/outboxkit/outbox-go/internal/checker"
	"github.com/outboxkit/outbox-go/outbox"
)

// Tables of a run, beside those of the outbox and the inbox.
var tables = []string{
	// One row for each transaction that committed.
	"CREATE TABLE fault_orders (id VARCHAR(64) PRIMARY KEY)",
	// The row that a transaction of a key locks, and how many there were.
	"CREATE TABLE fault_keys (id VARCHAR(64) PRIMARY KEY, n INT NOT NULL)",
	// One row for each effect of a listener; nothing keeps a second one away.
	"CREATE TABLE fault_effects (event VARCHAR(64) NOT NULL, listener VARCHAR(64) NOT NULL)",
}

// CreateTables makes all tables that processes of the spec need.
func CreateTables(ctx context.Context, db *sql.DB, spec Spec) error {
	if err := newStore(db, spec).CreateSchema(ctx, db); err != nil {
		return err
	}
	if err := newInbox(spec.Driver).CreateSchema(ctx, db); err != nil {
		return err
	}
	for _, table := range tables {
		if _, err := db.ExecContext(ctx, table); err != nil {
			return err
		}
	}
	for key := range spec.keys() {
		if _, err := db.ExecContext(ctx, fmt.Sprintf("INSERT INTO fault_keys VALUES ('%s', 0)", keyName(key))); err != nil {
			return err
		}
	}
	return nil
}

func (s Spec) keys() int {
	if s.Keys == 0 {
		return 8
	}
	return s.Keys
}

func keyName(key int) string { return fmt.Sprintf("k%d", key) }

func newInbox(driver string) *inbox.Inbox {
	dialect := map[string]inbox.Dialect{"pgx": inbox.Postgres, "mysql": inbox.MySQL, "sqlite": inbox.SQLite}[driver]
	return must(inbox.New(inbox.Config{Dialect: dialect}))
}

// quoted is a statement with its text parameters; the ids of a run have no quotes.
func quoted(query string, args ...any) string { return fmt.Sprintf(query, args...) }

func (n *node) effect(ctx context.Context, tx outbox.Execer, event, listener string) error {
	_, err := tx.ExecContext(ctx, quoted("INSERT INTO fault_effects VALUES ('%s', '%s')", event, listener))
	return err
}

// Read reads what the tables hold into a history.
func Read(ctx context.Context, db *sql.DB, h *checker.History) error {
	h.Orders, h.Rows, h.Effects = map[string]bool{}, map[string]checker.Row{}, map[checker.Effect]int{}
	err := each(ctx, db, "SELECT id FROM fault_orders", func(scan func(...any) error) error {
		var id string
		err := scan(&id)
		h.Orders[id] = true
		return err
	})
	if err != nil {
		return err
	}
	err = each(ctx, db, "SELECT event, listener FROM fault_effects", func(scan func(...any) error) error {
		var e checker.Effect
		err := scan(&e.Event, &e.Listener)
		h.Effects[e]++
		return err
	})
	if err != nil {
		return err
	}
	return each(ctx, db, "SELECT event_id, status, attempts, COALESCE(last_error, ''), COALESCE(locked_by, '') FROM outbox_event", func(scan func(...any) error) error {
		var (
			id     string
			status outbox.Status
			row    checker.Row
		)
		err := scan(&id, &status, &row.Attempts, &row.LastError, &row.Lease)
		row.Status = strings.ToUpper(status.String())
		h.Rows[id] = row
		return err
	})
}

func each(ctx context.Context, db *sql.DB, query string, row func(scan func(...any) error) error) error {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := row(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}
