package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// sharedRow is a row of the control table that processes replace by compare-and-set: owner has the
// version. The name needs no quotes inside.
type sharedRow struct{ kind, name string }

// is writes the condition for a row.
func (q *query) is(r sharedRow) *query {
	return q.add("kind = '", r.kind, "' AND name = '", r.name, "'")
}

// readShared reads a row, and the database's clock. The version is not valid if there is no row.
func (s *Store) readShared(ctx context.Context, db outbox.DB, what string, r sharedRow) (version, value sql.NullString, now time.Time, err error) {
	var clock timestamp
	q := s.query(256).add("SELECT read_at, owner, value FROM (SELECT ")
	if s.d.now == "" {
		q.now()
	} else {
		q.timeColumn(s.d.now)
	}
	q.add(" AS read_at) AS clock LEFT JOIN ").control(s).add(" ON ").is(r)
	err = s.rows(ctx, db, what, q, func(rows *sql.Rows) error { return rows.Scan(&clock, &version, &value) })
	return version, value, clock.Time, err
}

// maxControlValue is the length of MySQL's TEXT. A session that is not strict cuts a longer value.
const maxControlValue = 65_535

// setShared replaces a row that has the version was, under a condition, and reports whether it did.
func (s *Store) setShared(ctx context.Context, db outbox.DB, what string, r sharedRow, was, version, value string, condition func(*query)) (bool, error) {
	if s.d.name == "mysql" && len(value) > maxControlValue {
		return false, s.fail(what, fmt.Errorf("they are %d bytes, and the column value of the control table has room for %d; let fewer processes deliver", len(value), maxControlValue))
	}
	if was == "" {
		if err := s.insertControl(ctx, db, what, r); err != nil {
			return false, err
		}
	}
	q := s.query(256).add("UPDATE ").control(s).add(" SET owner = ").arg(version).add(", value = ").arg(value).add(" WHERE ").is(r)
	if was == "" {
		q.add(" AND owner IS NULL")
	} else {
		q.add(" AND owner = ").arg(was)
	}
	condition(q)
	n, err := s.changed(ctx, func() (int, error) { return s.exec(ctx, db, what, q) })
	return n > 0, err
}

// insertControl adds a row without an owner if the control table does not have the row.
func (s *Store) insertControl(ctx context.Context, db outbox.DB, what string, r sharedRow) error {
	q := s.query(256)
	q.add("INSERT INTO ").control(s).add(" (kind, name) VALUES ('", r.kind, "', '", r.name, "')")
	q.unlessExists()
	_, err := s.changed(ctx, func() (int, error) { return s.exec(ctx, db, what, q) })
	return err
}

// unlessExists makes an insert into the control table leave an existing row alone.
func (q *query) unlessExists() *query {
	if q.d.name == "mysql" {
		return q.add(" ON DUPLICATE KEY UPDATE kind = kind")
	}
	return q.add(" ON CONFLICT (kind, name) DO NOTHING")
}

// orReplace makes an insert into the control table replace columns of an existing row.
func (q *query) orReplace(columns ...string) *query {
	set, from, to := " ON CONFLICT (kind, name) DO UPDATE SET ", "excluded.", ""
	if q.d.name == "mysql" {
		set, from, to = " ON DUPLICATE KEY UPDATE ", "VALUES(", ")"
	}
	for i, column := range columns {
		if i > 0 {
			set = ", "
		}
		q.add(set, column, " = ", from, column, to)
	}
	return q
}

// farthest is later than the end of any report.
const farthest = 24 * time.Hour

// unexpired writes the condition for a report that has not ended. A value beyond the farthest end,
// such as infinity or a text of SQLite, was not written by a process, and would last for ever.
func (q *query) unexpired() *query {
	return q.add("expires_at BETWEEN ").now().add(" AND ").fromNow(farthest)
}

// control writes the name of the control table.
func (q *query) control(s *Store) *query { return q.add(s.name().Table("control").Quoted(q.d.quote)) }
