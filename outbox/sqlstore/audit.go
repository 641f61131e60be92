package sqlstore

import (
	"context"
	"database/sql"
	"encoding/json"
	"strconv"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// auditRow is the value of a row of the control table that is an entry of the audit log. The row's name
// is the id of the entry.
type auditRow struct {
	At         time.Time `json:"at"`
	By         string    `json:"by,omitempty"`
	From       string    `json:"from,omitempty"`
	Action     string    `json:"action"`
	Target     string    `json:"target,omitempty"`
	Count      int       `json:"count,omitempty"`
	Reason     string    `json:"reason,omitempty"`
	Incomplete bool      `json:"incomplete,omitempty"`
}

// RecordChange implements [outbox.Store].
func (s *Store) RecordChange(ctx context.Context, db outbox.DB, e outbox.AuditEntry, keep time.Duration) error {
	const what = "recording a change in the audit log"
	value, err := json.Marshal(auditRow{e.At.UTC(), e.Name, e.From, e.Action, e.Target, e.Count, e.Reason, e.Incomplete})
	if err != nil {
		return s.fail(what, err)
	}
	q := s.query(256)
	q.add("INSERT INTO ").control(s).add(" (kind, name, value, expires_at) VALUES ('audit', ").arg(e.ID).add(", ").arg(string(value)).
		add(", ").fromNow(keep).add(")")
	if _, err = s.changed(ctx, func() (int, error) { return s.exec(ctx, db, what, q) }); err != nil {
		return err
	}
	return s.forgetChanges(ctx, db)
}

// auditForgotten is how many entries of the audit log a change deletes at most, of each sort.
const auditForgotten = 100

// forgetChanges deletes entries of the audit log: of the oldest entries, the entries whose time is over,
// and the entries beyond the limit. The names are read first, as in forgetEnded.
func (s *Store) forgetChanges(ctx context.Context, db outbox.DB) error {
	var names []string
	read := func(q *query) error {
		return s.rows(ctx, db, "looking for old entries of the audit log", q, func(rows *sql.Rows) error {
			var name string
			var over bool
			err := rows.Scan(&name, &over)
			if over {
				names = append(names, name)
			}
			return err
		})
	}
	oldest := s.query(256)
	oldest.add("SELECT name, CASE WHEN expires_at <= ").now().add(" THEN 1 ELSE 0 END FROM ").control(s).
		add(" WHERE kind = 'audit' ORDER BY name LIMIT ", strconv.Itoa(auditForgotten))
	err := read(oldest)
	if err == nil {
		beyond := s.query(256)
		beyond.add("SELECT name, 1 FROM ").control(s).add(" WHERE kind = 'audit' ORDER BY name DESC LIMIT ", strconv.Itoa(auditForgotten), " OFFSET ", strconv.Itoa(outbox.AuditLimit))
		err = read(beyond)
	}
	for _, name := range names {
		if err != nil {
			break
		}
		q := s.query(128)
		q.add("DELETE FROM ").control(s).add(" WHERE kind = 'audit' AND name = ").arg(name)
		_, err = s.changed(ctx, func() (int, error) { return s.exec(ctx, db, "deleting an old entry of the audit log", q) })
	}
	return err
}

// Audit implements [outbox.Store]. A row whose value cannot be read is an entry without an action.
func (s *Store) Audit(ctx context.Context, db outbox.DB, before string, limit int) ([]outbox.AuditEntry, error) {
	q := s.query(256)
	q.add("SELECT name, value FROM ").control(s).add(" WHERE kind = 'audit'")
	if before != "" {
		q.add(" AND name < ").arg(before)
	}
	q.add(" AND expires_at > ").now().add(" ORDER BY name DESC LIMIT ", strconv.Itoa(limit))
	var list []outbox.AuditEntry
	err := s.rows(ctx, db, "reading the audit log", q, func(rows *sql.Rows) error {
		var id string
		var value sql.NullString
		if err := rows.Scan(&id, &value); err != nil {
			return err
		}
		e := outbox.AuditEntry{ID: id}
		var row auditRow
		if json.Unmarshal([]byte(value.String), &row) == nil {
			e.At, e.Operator = row.At, outbox.Operator{Name: row.By, From: row.From}
			e.Action, e.Target, e.Count, e.Reason, e.Incomplete = row.Action, row.Target, row.Count, row.Reason, row.Incomplete
		}
		list = append(list, e)
		return nil
	})
	return list, err
}
