package doctor

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// timeColumns are the columns with a time.
const timeColumns = "('available_at', 'created_at', 'done_at', 'locked_at', 'expires_at')"

// times checks the types of the columns with a time: other types work, but lose the time zone or
// the fractions of a second.
func (p *patient) times(ctx context.Context) error {
	found := len(p.findings)
	control := p.table.Table("control")
	scan := func(rows *sql.Rows) error {
		var table, column, kind string
		if err := rows.Scan(&table, &column, &kind); err != nil {
			return err
		}
		p.timeColumn(table, column, kind)
		return nil
	}
	var err error
	if p.dialect == "postgres" {
		err = p.each(ctx, "SELECT attrelid::regclass::text, attname::text, format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid IN (to_regclass($1), to_regclass($2)) AND NOT attisdropped AND attname IN "+timeColumns+" ORDER BY 1, 2",
			[]any{p.quoted(), control.Quoted(`"`)}, scan)
	} else {
		err = p.each(ctx, "SELECT table_name, column_name, column_type FROM information_schema.columns WHERE table_schema = COALESCE(NULLIF(?, ''), DATABASE()) AND table_name IN (?, ?) AND column_name IN "+timeColumns+" ORDER BY 1, 2",
			[]any{p.table.Schema, p.table.Name, control.Name}, scan)
	}
	if err == nil && p.dialect == "mysql" {
		err = p.columnCollations(ctx)
	}
	if err == nil && len(p.findings) == found {
		p.report(OK, "the columns with a time have the types of the schema", "")
	}
	return err
}

// columnCollations looks for columns with a collation other than the table's, which the check storage
// reports. Columns of the user's own do not matter.
func (p *patient) columnCollations(ctx context.Context) error {
	return p.each(ctx, "SELECT c.table_name, c.column_name, c.collation_name FROM information_schema.columns AS c JOIN information_schema.tables AS t USING (table_schema, table_name)"+
		" WHERE table_schema = COALESCE(NULLIF(?, ''), DATABASE()) AND table_name IN (?, ?) AND c.collation_name <> t.table_collation"+
		" AND c.column_name IN ('event_id', 'event_type', 'aggregate_type', 'aggregate_id', 'tenant_id', 'locked_by', 'last_error', 'kind', 'name', 'owner') ORDER BY 1, 2",
		[]any{p.table.Schema, p.table.Name, p.table.Table("control").Name}, func(rows *sql.Rows) error {
			var table, column, collation string
			if err := rows.Scan(&table, &column, &collation); err != nil {
				return err
			}
			if collation != p.exactCollation {
				p.report(Warning, fmt.Sprintf("the collation of %s of %s is %s, with which different texts may be equal, or cannot be stored", column, table, collation),
					"ALTER TABLE `"+table+"` CONVERT TO CHARACTER SET utf8mb4 COLLATE "+p.exactCollation)
			}
			return nil
		})
}

func (p *patient) timeColumn(table, column, kind string) {
	seen := fmt.Sprintf("%s of %s is %s", column, table, kind)
	switch {
	case p.dialect == "postgres" && kind != "timestamp with time zone":
		p.report(Failure, seen+", so due times move with the time zone of a session", fmt.Sprintf("ALTER TABLE %s ALTER COLUMN %s TYPE timestamptz USING %s AT TIME ZONE 'UTC'", table, column, column))
	case p.dialect == "mysql" && strings.ToLower(kind) != "datetime(6)":
		p.report(Warning, seen+", so the order of events within a second is lost, or times move with the time zone of a session", fmt.Sprintf("ALTER TABLE `%s` MODIFY `%s` DATETIME(6)%s", table, column, map[bool]string{true: " NOT NULL"}[column == "available_at" || column == "created_at"]))
	}
}

// The shortest time limits that do not disturb an outbox under load.
const (
	leastStatement = 5 * time.Second
	leastLock      = time.Second
	leastIdle      = 2 * time.Second
)

// limits of sessions, and the shortest value of each.
var timeLimits = []struct {
	names string
	least time.Duration
	harm  string
}{
	{"statement_timeout max_execution_time max_statement_time transaction_timeout", leastStatement, "polls and marks fail when the table or the server is busy"},
	{"lock_timeout innodb_lock_wait_timeout busy_timeout", leastLock, "statements fail instead of waiting for each other"},
	{"idle_in_transaction_session_timeout idle_transaction_timeout wait_timeout", leastIdle, "a transaction that does other work for that long is lost, with its events"},
}

// timeouts checks the time limits that sessions have by default.
func (p *patient) timeouts(ctx context.Context) error {
	limits, err := p.timeLimits(ctx)
	if err != nil {
		return err
	}
	found := len(p.findings)
	for _, l := range timeLimits {
		for name := range strings.FieldsSeq(l.names) {
			// No busy_timeout is no wait; for the other limits, zero is no limit.
			if limit, known := limits[name]; known && limit < l.least && (limit > 0 || name == "busy_timeout") {
				p.report(Warning, fmt.Sprintf("%s is %s, so %s", name, limit, l.harm), p.longer(name, l.least))
			}
		}
	}
	if len(p.findings) == found {
		p.report(OK, "the time limits of statements and locks are long enough", "")
	}
	return nil
}

// longer says how to give sessions a longer limit.
func (p *patient) longer(name string, least time.Duration) string {
	if p.dialect == "sqlite" {
		return fmt.Sprintf("give the address of every program _pragma=busy_timeout(%d) or more", 5*least.Milliseconds())
	}
	return fmt.Sprintf("give the user of the services a %s of %s or more, or none: look at the address, the user, the database and the server", name, least)
}

func (p *patient) timeLimits(ctx context.Context) (map[string]time.Duration, error) {
	limits := map[string]time.Duration{}
	switch p.dialect {
	case "postgres":
		return limits, p.each(ctx, "SELECT name, setting::bigint FROM pg_settings WHERE name IN ('statement_timeout', 'lock_timeout', 'transaction_timeout', 'idle_in_transaction_session_timeout')", nil, func(rows *sql.Rows) error {
			var name string
			var ms int64
			err := rows.Scan(&name, &ms)
			limits[name] = time.Duration(ms) * time.Millisecond
			return err
		})
	case "sqlite":
		var ms int64
		err := p.one(ctx, "PRAGMA busy_timeout", nil, &ms)
		limits["busy_timeout"] = time.Duration(ms) * time.Millisecond
		return limits, err
	}
	values, err := p.variables(ctx, "max_execution_time", "max_statement_time", "innodb_lock_wait_timeout", "wait_timeout", "idle_transaction_timeout")
	for name, value := range values {
		unit := time.Second
		if name == "max_execution_time" {
			unit = time.Millisecond
		}
		if n, err := strconv.ParseFloat(value, 64); err == nil {
			limits[name] = time.Duration(n * float64(unit))
		}
	}
	return limits, err
}
