package sqlstore

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// pauseRow is the value of the row of the control table that pauses a kind of event.
type pauseRow struct {
	AggregateType outbox.AggregateType `json:"aggregate_type"`
	EventType     outbox.EventType     `json:"event_type"`
	Since         time.Time            `json:"since"`
}

// pauseName is the name of the row that pauses a kind. Both types together are longer than the
// column.
func pauseName(kind outbox.EventKind) string {
	h := sha256.Sum256([]byte(string(kind.AggregateType) + "\x00" + string(kind.EventType)))
	return hex.EncodeToString(h[:])
}

// Pause implements [outbox.Store].
func (s *Store) Pause(ctx context.Context, db outbox.DB, pause outbox.Pause) error {
	value, err := json.Marshal(pauseRow{pause.Kind.AggregateType, pause.Kind.EventType, pause.Since.UTC()})
	if err != nil {
		return s.fail("pausing "+pause.Kind.String(), err)
	}
	q := s.query(256)
	q.add("INSERT INTO ").control(s).add(" (kind, name, value) VALUES ('pause', ").arg(pauseName(pause.Kind)).add(", ").arg(string(value)).add(")")
	q.unlessExists()
	_, err = s.changed(ctx, func() (int, error) { return s.exec(ctx, db, "pausing "+pause.Kind.String(), q) })
	return err
}

// Resume implements [outbox.Store].
func (s *Store) Resume(ctx context.Context, db outbox.DB, kind outbox.EventKind) error {
	q := s.query(256)
	q.add("DELETE FROM ").control(s).add(" WHERE kind = 'pause' AND name = ").arg(pauseName(kind))
	_, err := s.changed(ctx, func() (int, error) { return s.exec(ctx, db, "resuming "+kind.String(), q) })
	return err
}

// Paused implements [outbox.Store].
func (s *Store) Paused(ctx context.Context, db outbox.DB) ([]outbox.Pause, error) {
	var list []outbox.Pause
	q := s.query(128)
	q.add("SELECT name, value FROM ").control(s).add(" WHERE kind = 'pause'")
	err := s.rows(ctx, db, "reading what is paused", q, func(rows *sql.Rows) error {
		var name string
		var value sql.NullString
		if err := rows.Scan(&name, &value); err != nil {
			return err
		}
		pause, err := readPause(name, value.String)
		if err == nil {
			list = append(list, pause)
		}
		return err
	})
	return list, err
}

// readPause reads the value of a row that pauses a kind of event.
func readPause(name, value string) (outbox.Pause, error) {
	var row pauseRow
	if err := json.Unmarshal([]byte(value), &row); err != nil {
		return outbox.Pause{}, fmt.Errorf("row 'pause', '%.128s' of the control table has no valid value (%w); delete it, and pause the kind again", name, err)
	}
	return outbox.Pause{Kind: outbox.EventKind{AggregateType: row.AggregateType, EventType: row.EventType}, Since: row.Since}, nil
}
