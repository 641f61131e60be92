package sqlstore

import (
	"strconv"
	"strings"
	"time"
)

// dialect holds the differences between databases in writing and reading a value. Statements that
// differ as a whole are chosen where they are built.
type dialect struct {
	name  string
	quote string
	// dollar: parameters are $1, $2…, else ?.
	dollar bool
	// now is the database's clock in UTC; empty: this process's clock.
	now string
	// layout of times as parameters; empty: microseconds since 1970.
	layout string
	// timeCast wraps a time parameter, textColumn a selected time column: NULL stands for a value
	// that [timestamp] could not read.
	timeCast, textColumn string
	// dated is the condition, as an index has it, for a time that can be read; undated are the
	// conditions for a time that cannot be read, one for each statement.
	dated   string
	undated []string
	// moved is available_at a microsecond later.
	moved string
	// payloadBytes is the length of a payload's text.
	payloadBytes string
	// unlessThere ends an INSERT that leaves existing rows with the same ids as they are.
	unlessThere string
}

var postgres = &dialect{
	name: "postgres", quote: `"`, dollar: true, now: "clock_timestamp()",
	// A string with a zone is exact with every driver and protocol. Package time
	// writes this layout several times faster than others.
	layout: time.RFC3339Nano, timeCast: "CAST(%s AS TIMESTAMPTZ)",
	// Some drivers cannot read infinity or a time before Christ, and fail the whole read.
	textColumn: "CASE WHEN %[1]s BETWEEN '0001-01-02 00:00+00' AND '9999-12-31 00:00+00' THEN %[1]s END",
	// Without statistics, PostgreSQL expects almost no rows between two bounds, and sorts all rows
	// that are there. The CASE hides the lower bound.
	dated: "%[1]s <= '9999-12-31 00:00+00' AND CASE WHEN %[1]s >= '0001-01-02 00:00+00' THEN TRUE ELSE FALSE END",
	// For undated rows the estimate of two bounds is right. After a single bound PostgreSQL expects a
	// third of the rows, and starts the JIT compiler and parallel workers before it finds no row.
	undated:      []string{"%[1]s >= '-infinity' AND %[1]s < '0001-01-02 00:00+00'", "%[1]s > '9999-12-31 00:00+00' AND %[1]s <= 'infinity'", "%[1]s IS NULL"},
	moved:        "available_at + INTERVAL '1 microsecond'", // infinity stays as it is
	payloadBytes: "OCTET_LENGTH(CAST(payload AS TEXT))",
	unlessThere:  " ON CONFLICT DO NOTHING",
}

var mysql = &dialect{
	name: "mysql", quote: "`", now: "UTC_TIMESTAMP(6)",
	// Strings in and out: the meaning of a time.Time depends on the DSN's loc.
	layout: "2006-01-02 15:04:05.000000", timeCast: "%s", textColumn: "DATE_FORMAT(%[1]s, '%%Y-%%m-%%d %%H:%%i:%%s.%%f')",
	dated: "%[1]s >= '0001-01-02'", undated: []string{"(%[1]s < '0001-01-02' OR %[1]s IS NULL)"},
	moved:        "available_at + INTERVAL 1 MICROSECOND",
	payloadBytes: "OCTET_LENGTH(payload)",
	// IGNORE would hide other errors.
	unlessThere: " ON DUPLICATE KEY UPDATE event_id = event_id",
}

var sqlite = &dialect{
	name: "sqlite", quote: `"`, timeCast: "%s", unlessThere: postgres.unlessThere,
	// A text may look like a time, and is behind all times in the index.
	textColumn:   "CASE typeof(%[1]s) WHEN 'integer' THEN %[1]s END",
	dated:        "%[1]s BETWEEN -62135510400000000 AND 253402214400000000", // as for PostgreSQL
	undated:      []string{"%[1]s < -62135510400000000", "%[1]s > 253402214400000000", "%[1]s IS NULL"},
	moved:        "CASE typeof(available_at) WHEN 'integer' THEN available_at + 1 ELSE available_at END",
	payloadBytes: "LENGTH(CAST(payload AS BLOB))",
}

// timeArg is a time as a parameter.
func (d *dialect) timeArg(t time.Time) any {
	t = t.UTC().Truncate(time.Microsecond)
	if d.layout == "" {
		return t.UnixMicro()
	}
	return t.Format(d.layout)
}

// query builds a statement and its arguments.
type query struct {
	d    *dialect
	b    strings.Builder
	args []any
}

func (s *Store) query(capacity int) *query {
	q := &query{d: s.d}
	q.b.Grow(capacity)
	return q
}

func (q *query) text() string { return q.b.String() }

// add writes SQL unchanged. Inlined at each of its 500 calls, add would be 0.2 MB of every program.
//
//go:noinline
func (q *query) add(parts ...string) *query {
	for _, p := range parts {
		q.b.WriteString(p)
	}
	return q
}

// call lets a function write.
func (q *query) call(write func()) *query {
	write()
	return q
}

func (q *query) table(s *Store) *query { return q.add(s.name().Quoted(q.d.quote)) }

// emptyText is the empty text. MariaDB's sql_mode EMPTY_STRING_IS_NULL makes NULL of the
// literal, and of such a parameter, but not of an expression.
func (d *dialect) emptyText() string {
	if d.name == "mysql" {
		return "LEFT('x', 0)"
	}
	return "''"
}

// arg writes a parameter.
func (q *query) arg(v any) *query {
	if v == "" && q.d.name == "mysql" {
		return q.add(q.d.emptyText())
	}
	q.args = append(q.args, v)
	if !q.d.dollar {
		return q.add("?")
	}
	q.b.WriteByte('$')
	var digits [8]byte
	q.b.Write(strconv.AppendInt(digits[:0], int64(len(q.args)), 10))
	return q
}

// time writes a time parameter.
func (q *query) time(t time.Time) *query {
	before, after, _ := strings.Cut(q.d.timeCast, "%s")
	return q.add(before).arg(q.d.timeArg(t)).add(after)
}

// now writes the database's clock.
func (q *query) now() *query {
	if q.d.now != "" {
		return q.add(q.d.now)
	}
	return q.arg(q.d.timeArg(time.Now()))
}

// fromNow writes the database's clock, d later.
func (q *query) fromNow(d time.Duration) *query {
	switch q.d {
	case postgres:
		return q.add("clock_timestamp() + CAST(").arg(d.Microseconds()).add(" AS BIGINT) * INTERVAL '1 microsecond'")
	case sqlite:
		return q.arg(q.d.timeArg(time.Now().Add(d)))
	default:
		return q.add("UTC_TIMESTAMP(6) + INTERVAL ").arg(d.Microseconds()).add(" MICROSECOND")
	}
}

// ids writes a condition for a list of ids, for PostgreSQL as an array.
func (q *query) ids(column string, ids []string) *query {
	q.add(column)
	if q.d == postgres {
		return q.add(" = ANY(CAST(").arg(textArray(ids)).add(" AS TEXT[]))")
	}
	q.add(" IN (")
	for i := range ids {
		if i > 0 {
			q.add(",")
		}
		q.arg(ids[i])
	}
	return q.add(")")
}

// textArray is a PostgreSQL array literal, which every driver passes as a
// string.
func textArray(items []string) string {
	var b strings.Builder
	size := len("{}")
	for _, s := range items {
		size += len(s) + len(`"",`)
	}
	b.Grow(size) // growing would take twice the memory
	b.WriteByte('{')
	for i, s := range items {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('"')
		for {
			j := strings.IndexAny(s, `"\`)
			if j < 0 {
				break
			}
			b.WriteString(s[:j])
			b.WriteByte('\\')
			b.WriteByte(s[j])
			s = s[j+1:]
		}
		b.WriteString(s)
		b.WriteByte('"')
	}
	b.WriteByte('}')
	return b.String()
}
