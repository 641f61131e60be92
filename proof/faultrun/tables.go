package faultrun

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/outboxkit/outbox-go/inbox"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/proof/checker"
)

// Tables of a run, beside the tables of the outbox and the inbox.
var tables = []string{
	// A row for each transaction that committed.
	"CREATE TABLE fault_orders (id VARCHAR(64) PRIMARY KEY)",
	// A row for each key. A transaction of the key locks the row, and n counts these transactions.
	"CREATE TABLE fault_keys (id VARCHAR(64) PRIMARY KEY, n INT NOT NULL)",
	// A row that the run itself changes, to see whether the database answers.
	"CREATE TABLE fault_watch (n INT NOT NULL)",
	"INSERT INTO fault_watch VALUES (0)",
	// A row for each effect of a listener; nothing prevents a second row for the same effect.
	"CREATE TABLE fault_effects (event VARCHAR(64) NOT NULL, listener VARCHAR(64) NOT NULL)",
	// A row for each time a DEAD row was deleted, by an operator or the purger, replayed, or restored, and
	// for each time a row of type Brief became DEAD as expired or was deleted while it was pending. did
	// is a checker.Op.
	"CREATE TABLE fault_dead (event VARCHAR(64) NOT NULL, did VARCHAR(16) NOT NULL, at BIGINT NOT NULL)",
}

// triggers fill fault_dead, in the transaction that deletes, replays or restores; times are
// microseconds since 1970.
func triggers(d inbox.Dialect) (statements []string) {
	const now = "EXTRACT(EPOCH FROM clock_timestamp()) * 1000000"
	for _, t := range []struct{ name, on, when, returned, did string }{
		{"fault_deleted", "DELETE", "OLD.status = 3", "OLD", string(checker.OpDeleted)},
		{"fault_taken", "UPDATE", "OLD.status = 3 AND NEW.status = 1 AND NEW.locked_by LIKE '" + outbox.DeletedBy + "%'", "NEW", string(checker.OpDeleted)},
		{"fault_restored", "UPDATE", "OLD.status = 1 AND NEW.status = 3", "NEW", string(checker.OpRestored)},
		{"fault_replayed", "UPDATE", "OLD.status = 3 AND NEW.status IN (0, 2)", "NEW", string(checker.OpReplayed)},
		{"fault_expired", "UPDATE", "OLD.event_type = '" + Brief + "' AND NEW.status = 3 AND NEW.last_error LIKE 'expired%'", "NEW", string(checker.OpExpired)},
		{"fault_dropped", "DELETE", "OLD.event_type = '" + Brief + "' AND OLD.status IN (0, 2)", "OLD", string(checker.OpExpired)},
	} {
		create := fmt.Sprintf("CREATE TRIGGER %s BEFORE %s ON outbox_event FOR EACH ROW ", t.name, t.on)
		insert := fmt.Sprintf("INSERT INTO fault_dead SELECT OLD.event_id, '%s', ", t.did)
		switch d {
		case inbox.Postgres:
			statements = append(statements,
				fmt.Sprintf("CREATE FUNCTION %s() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN %s%s; RETURN %s; END $$", t.name, insert, now, t.returned),
				fmt.Sprintf("%sWHEN (%s) EXECUTE FUNCTION %s()", create, t.when, t.name))
		case inbox.MySQL:
			statements = append(statements, create+insert+"UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 FROM DUAL WHERE "+t.when)
		case inbox.SQLite:
			statements = append(statements, create+"WHEN "+t.when+" BEGIN "+insert+"CAST(unixepoch('subsec') * 1000000 AS INTEGER); END")
		}
	}
	return statements
}

// refusedText is in texts that the database refuses in runs with [Spec].Refused.
const refusedText = "\u2620"

// refusing are the statements that make the database refuse these texts.
func refusing(d inbox.Dialect) []string {
	const create = "CREATE TRIGGER fault_refused BEFORE UPDATE ON outbox_event FOR EACH ROW "
	const refused = "NEW.last_error LIKE '%" + refusedText + "%'"
	switch d {
	case inbox.Postgres:
		return []string{"ALTER TABLE outbox_event ADD CONSTRAINT fault_refused CHECK (last_error NOT LIKE '%" + refusedText + "%')"}
	case inbox.MySQL:
		return []string{create + "BEGIN IF " + refused + " THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'refused'; END IF; END"}
	default:
		return []string{create + "WHEN " + refused + " BEGIN SELECT RAISE(ABORT, 'refused'); END"}
	}
}

// abroadSchema has another table of the outbox's name, on PostgreSQL.
const abroadSchema = "fault_abroad"

// abroad are the statements that make that table.
func abroad(d inbox.Dialect) []string {
	if d != inbox.Postgres {
		return nil
	}
	return []string{"CREATE SCHEMA " + abroadSchema, "CREATE TABLE " + abroadSchema + ".outbox_event (LIKE outbox_event INCLUDING ALL)"}
}

// CreateSchema makes the outbox's tables, as an application does when it starts.
func CreateSchema(ctx context.Context, db *sql.DB, spec Spec) error {
	store, err := detect(ctx, db, spec)
	if err != nil {
		return err
	}
	return store.CreateSchema(ctx, db)
}

// CreateTables makes all tables that processes of the spec need.
func CreateTables(ctx context.Context, db *sql.DB, spec Spec) error {
	if err := CreateSchema(ctx, db, spec); err != nil {
		return err
	}
	if err := newInbox(spec.Driver).CreateSchema(ctx, db); err != nil {
		return err
	}
	if err := newKeys(db, spec).CreateSchema(ctx); err != nil {
		return err
	}
	d := dialect(spec.Driver)
	statements := slices.Concat(tables, triggers(d))
	if spec.Abroad > 0 {
		statements = append(statements, abroad(d)...)
	}
	if spec.Refused {
		statements = append(statements, refusing(d)...)
	}
	for _, table := range statements {
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
	return must(inbox.New(inbox.Config{Dialect: dialect(driver)}))
}

func dialect(driver string) inbox.Dialect {
	switch driver {
	case "mysql":
		return inbox.MySQL
	case "sqlite":
		return inbox.SQLite
	default:
		return inbox.Postgres
	}
}

// quoted is a statement with text parameters; the ids of a run have no quotes.
func quoted(query string, args ...any) string { return fmt.Sprintf(query, args...) }

func (n *node) effect(ctx context.Context, tx outbox.Execer, event, listener string) error {
	_, err := tx.ExecContext(ctx, quoted("INSERT INTO fault_effects VALUES ('%s', '%s')", event, listener))
	return err
}

// Read reads the tables into a history.
func Read(ctx context.Context, db *sql.DB, h *checker.History) error {
	h.Orders, h.Rows, h.Effects = map[string]bool{}, map[checker.Target]checker.Row{}, map[checker.Target]int{}
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
		var e checker.Target
		err := scan(&e.Event, &e.Listener)
		h.Effects[e]++
		return err
	})
	if err != nil {
		return err
	}
	err = each(ctx, db, "SELECT event, did, at FROM fault_dead", func(scan func(...any) error) error {
		var (
			at      int64
			id, did string
		)
		err := scan(&id, &did, &at)
		h.Records = append(h.Records, checker.Record{
			At: time.UnixMicro(at), Process: "database", Op: checker.Op(did), Events: []checker.Event{{ID: id}},
		})
		return err
	})
	if err != nil {
		return err
	}
	const rows = "SELECT event_id, COALESCE(headers, '{}'), status, attempts, COALESCE(last_error, ''), COALESCE(locked_by, '') FROM outbox_event" +
		" WHERE NOT (status = 1 AND COALESCE(locked_by, '') LIKE '" + outbox.DeletedBy + "%')" // of deleted dead letters
	return each(ctx, db, rows, func(scan func(...any) error) error {
		var (
			id      string
			text    []byte
			headers map[string]string
			status  outbox.Status
			row     checker.Row
		)
		err := errors.Join(scan(&id, &text, &status, &row.Attempts, &row.LastError, &row.Lease), json.Unmarshal(text, &headers))
		row.Status = status.String()
		h.Rows[checker.TargetOf(id, headers)] = row
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
