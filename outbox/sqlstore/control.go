package sqlstore

import (
	"context"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// insertControl adds a row without an owner if the control table has no row with this kind and name.
func (s *Store) insertControl(ctx context.Context, db outbox.DB, what, key string) error {
	q := s.query(256)
	q.add("INSERT INTO ").control(s).add(" (kind, name) VALUES (", key, ")")
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
