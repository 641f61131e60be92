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
	if err == nil && len(p.findings) == found {
		p.report(OK, "the columns with a time have the types of the schema", "")
	}
	return err
}

func (p *patient) timeColumn(table, column, kind string) {
	seen := fmt.Sprintf("%s of %s is %s", column, table, kind)
	switch {
	case p.dialect == "postgres" && kind != "timestamp with time zone":
		p.report(Failure, seen+", so due times move with the time zone of a session", fmt.Sprintf("ALTER TABLE %s ALTER COLUMN %s TYPE timestamptz USING %s AT TIME ZONE 'UTC'", table, column, column))
	case p.dialect == "mysql" && strings.ToLower(kind) != "datetime(6)":
		p.report(Warning, seen+", so the order of events within a second is lost, or times move with the time zone of a session", fmt.Sprintf("make the column %s DATETIME(6), as outbox schema print has it", column))
	}
}

// The shortest time limits that do not disturb an outbox under load.
const (
	leastStatement = 5 * time.Second
	leastLock      = time.Second
)

// timeouts checks the time limits that sessions have by default.
func (p *patient) timeouts(ctx context.Context) error {
	limits, err := p.timeLimits(ctx)
	if err != nil {
		return err
	}
	found := len(p.findings)
	for _, l := range []struct {
		names string
		least time.Duration
	}{{"statement_timeout max_execution_time max_statement_time", leastStatement}, {"lock_timeout innodb_lock_wait_timeout", leastLock}} {
		for name := range strings.FieldsSeq(l.names) {
			if limit := limits[name]; limit > 0 && limit < l.least {
				p.report(Warning, fmt.Sprintf("%s is %s, so polls and marks fail when the table or the server is busy", name, limit), fmt.Sprintf("give the user of the services %s or more", l.least))
			}
		}
	}
	if len(p.findings) == found {
		p.report(OK, "the time limits of statements and locks are long enough", "")
	}
	return nil
}

func (p *patient) timeLimits(ctx context.Context) (map[string]time.Duration, error) {
	limits := map[string]time.Duration{}
	if p.dialect == "postgres" {
		return limits, p.each(ctx, "SELECT name, setting::bigint FROM pg_settings WHERE name IN ('statement_timeout', 'lock_timeout')", nil, func(rows *sql.Rows) error {
			var name string
			var ms int64
			err := rows.Scan(&name, &ms)
			limits[name] = time.Duration(ms) * time.Millisecond
			return err
		})
	}
	values, err := p.variables(ctx, "max_execution_time", "max_statement_time", "innodb_lock_wait_timeout")
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
