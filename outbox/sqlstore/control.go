package sqlstore

import (
	"context"
	"database/sql"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// The row of the control table that says which process holds the event table.
const holdRow = " WHERE kind = 'lease' AND name = 'table'"

// holdTries is how often HoldTable retries when another process was faster.
const holdTries = 5

// hold is the holdRow as read.
type hold struct {
	exists  bool
	owner   sql.NullString
	expired bool
}

// HoldTable implements [outbox.Store]. HoldTable reads the row, then replaces the row if it is
// unchanged: of two processes that take the table at once, one fails.
func (s *Store) HoldTable(ctx context.Context, db outbox.DB, owner string, d time.Duration) (outbox.TableHolder, error) {
	var was hold
	for range holdTries {
		var err error
		if was, err = s.readHold(ctx, db); err != nil {
			return outbox.TableHolder{}, err
		}
		free, ours := !was.owner.Valid, was.owner.String == owner
		if !free && !ours && !was.expired {
			break
		}
		if !was.exists {
			err = s.insertControl(ctx, db, "holding the table", "'lease', 'table'")
		}
		if err != nil {
			return outbox.TableHolder{}, err
		}
		n, err := s.changed(ctx, func() (int, error) { return s.exec(ctx, db, "holding the table", s.replaceHold(was, owner, d)) })
		if err != nil {
			return outbox.TableHolder{}, err
		}
		if n > 0 {
			holder := outbox.TableHolder{Owner: owner}
			if !free && !ours {
				holder.Died = was.owner.String
			}
			return holder, nil
		}
	}
	return outbox.TableHolder{Owner: was.owner.String}, nil
}

func (s *Store) readHold(ctx context.Context, db outbox.DB) (hold, error) {
	var h hold
	q := s.query(256)
	q.add("SELECT owner, CASE WHEN ").unexpired().add(" THEN 0 ELSE 1 END FROM ").control(s).add(holdRow)
	err := s.rows(ctx, db, "reading who holds the table", q, func(rows *sql.Rows) error {
		h.exists = true
		return rows.Scan(&h.owner, &h.expired)
	})
	return h, err
}

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

// replaceHold gives the row to the owner if it is unchanged since it was read.
func (s *Store) replaceHold(was hold, owner string, d time.Duration) *query {
	q := s.query(256)
	q.add("UPDATE ").control(s).add(" SET owner = ").arg(owner).add(", expires_at = ").fromNow(d).add(holdRow)
	if !was.owner.Valid {
		return q.add(" AND owner IS NULL")
	}
	q.add(" AND owner = ").arg(was.owner.String)
	if was.owner.String != owner {
		q.add(" AND CASE WHEN ").unexpired().add(" THEN FALSE ELSE TRUE END")
	}
	return q
}

// ReleaseTable implements [outbox.Store].
func (s *Store) ReleaseTable(ctx context.Context, db outbox.DB, owner string) error {
	q := s.query(256)
	q.add("UPDATE ").control(s).add(" SET owner = NULL, expires_at = NULL", holdRow, " AND owner = ").arg(owner)
	_, err := s.changed(ctx, func() (int, error) { return s.exec(ctx, db, "releasing the table", q) })
	return err
}

// farthest is later than the end of any hold and of any report.
const farthest = 24 * time.Hour

// unexpired writes the condition for a hold, or a report, that has not ended. A value beyond
// the farthest end, such as infinity or a text of SQLite, was not written by a process, and
// would last for ever.
func (q *query) unexpired() *query {
	return q.add("expires_at BETWEEN ").now().add(" AND ").fromNow(farthest)
}

// control writes the name of the control table.
func (q *query) control(s *Store) *query { return q.add(s.name().Table("control").Quoted(q.d.quote)) }
