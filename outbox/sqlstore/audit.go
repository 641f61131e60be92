package sqlstore

import (
	"context"
	"database/sql"
	"encoding/json"
	"slices"
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
	Deletion   string    `json:"deletion,omitempty"`
	Reason     string    `json:"reason,omitempty"`
	Incomplete bool      `json:"incomplete,omitempty"`
}

// RecordChange implements [outbox.Store].
func (s *Store) RecordChange(ctx context.Context, db outbox.DB, e outbox.AuditEntry, keep time.Duration) error {
	const what = "recording a change in the audit log"
	value, err := json.Marshal(auditRow{e.At.UTC(), e.Name, e.From, e.Action, e.Target, e.Count, e.DeletionID, e.Reason, e.Incomplete})
	if err != nil {
		return s.fail(what, err)
	}
	q := s.query(256)
	q.add("INSERT INTO ").control(s).add(" (kind, name, value, expires_at) VALUES ('audit', ").arg(e.ID).add(", ").arg(string(value)).
		add(", ").fromNow(keep).add(")")
	_, err = s.changed(ctx, func() (int, error) { return s.exec(ctx, db, what, q) })
	return err
}

// ForgetChanges implements [outbox.Store]. The names are read first, as in forgetEnded.
func (s *Store) ForgetChanges(ctx context.Context, db outbox.DB, keep, limit int) (int, error) {
	over, surplus := s.query(256), s.query(256)
	over.add("SELECT name FROM ").control(s).add(" WHERE kind = 'audit' AND expires_at <= ").now().
		add(" ORDER BY name LIMIT ", strconv.Itoa(limit))
	surplus.add("SELECT name FROM ").control(s).add(" WHERE kind = 'audit' ORDER BY name DESC LIMIT ", strconv.Itoa(limit), " OFFSET ", strconv.Itoa(keep))
	var names []string
	for _, q := range []*query{over, surplus} {
		err := s.rows(ctx, db, "looking for old entries of the audit log", q, func(rows *sql.Rows) error {
			var name string
			err := rows.Scan(&name)
			names = append(names, name)
			return err
		})
		if err != nil {
			return 0, err
		}
	}
	if len(names) == 0 {
		return 0, nil
	}
	slices.Sort(names)
	q := s.query(1024)
	q.add("DELETE FROM ").control(s).add(" WHERE kind = 'audit' AND ").ids("name", slices.Compact(names))
	return s.changed(ctx, func() (int, error) { return s.exec(ctx, db, "deleting old entries of the audit log", q) })
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
			e.Action, e.Target, e.Count, e.DeletionID = row.Action, row.Target, row.Count, row.Deletion
			e.Reason, e.Incomplete = row.Reason, row.Incomplete
		}
		list = append(list, e)
		return nil
	})
	return list, err
}
