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

// pauseRow is the value of the row of the control table that pauses a kind of event, or a key of the
// kind. The end of the pause is in expires_at. An automatic pause has the owner automaticOwner, other
// pauses have no owner.
type pauseRow struct {
	AggregateType outbox.AggregateType `json:"aggregate_type"`
	EventType     outbox.EventType     `json:"event_type"`
	AggregateID   string               `json:"aggregate_id,omitempty"`
	Since         time.Time            `json:"since"`
	Reason        string               `json:"reason,omitempty"`
	By            string               `json:"by,omitempty"`
}

const automaticOwner = "listener"

// kindName is the name of a row that is for a kind. Both types together are longer than the
// column.
func kindName(kind outbox.EventKind) string {
	h := sha256.Sum256([]byte(string(kind.AggregateType) + "\x00" + string(kind.EventType)))
	return hex.EncodeToString(h[:])
}

// pauseID is the kind and the name of the row that pauses a kind of event or a key. The rows of keys have
// a kind of their own: a process of an older version would take a key for a kind.
func pauseID(kind outbox.EventKind, aggregateID string) (rows, name string) {
	if aggregateID == "" {
		return "pause", kindName(kind)
	}
	h := sha256.Sum256([]byte(string(kind.AggregateType) + "\x00" + string(kind.EventType) + "\x00" + aggregateID))
	return "pause-key", hex.EncodeToString(h[:])
}

// pausedText names a kind or a key in errors.
func pausedText(kind outbox.EventKind, aggregateID string) string {
	if aggregateID == "" {
		return kind.String()
	}
	return aggregateID + " of " + kind.String()
}

// Pause implements [outbox.Store]. An automatic pause takes two statements: an insert, which leaves an
// existing row alone, and an update of a row that ends earlier.
func (s *Store) Pause(ctx context.Context, db outbox.DB, pause outbox.Pause) error {
	what := "pausing " + pausedText(pause.Kind, pause.AggregateID)
	rows, name := pauseID(pause.Kind, pause.AggregateID)
	value, err := json.Marshal(pauseRow{pause.Kind.AggregateType, pause.Kind.EventType, pause.AggregateID, pause.Since.UTC(), pause.Reason, pause.By})
	if err != nil {
		return s.fail(what, err)
	}
	q := s.query(512)
	q.add("INSERT INTO ").control(s).add(" (kind, name, owner, value, expires_at) VALUES ('" + rows + "', ").arg(name).add(", ").
		pauseOwner(pause).add(", ").arg(string(value)).add(", ").end(pause).add(")")
	if pause.Automatic {
		q.unlessExists()
	} else {
		q.orReplace("owner", "value", "expires_at")
	}
	if _, err = s.changed(ctx, func() (int, error) { return s.exec(ctx, db, what, q) }); err != nil || !pause.Automatic {
		return err
	}
	q = s.query(512)
	q.add("UPDATE ").control(s).add(" SET owner = ").pauseOwner(pause).add(", value = ").arg(string(value)).add(", expires_at = ").end(pause).
		add(" WHERE kind = '" + rows + "' AND name = ").arg(name).
		add(" AND (expires_at <= ").now().add(" OR owner = '" + automaticOwner + "' AND expires_at < ").end(pause).add(")")
	_, err = s.changed(ctx, func() (int, error) { return s.exec(ctx, db, what, q) })
	return err
}

// pauseOwner writes the owner of a pause.
func (q *query) pauseOwner(pause outbox.Pause) *query {
	if pause.Automatic {
		return q.add("'" + automaticOwner + "'")
	}
	return q.add("NULL")
}

// end writes the end of a pause.
func (q *query) end(pause outbox.Pause) *query {
	if pause.Until.IsZero() {
		return q.add("NULL")
	}
	return q.time(pause.Until)
}

// Resume implements [outbox.Store].
func (s *Store) Resume(ctx context.Context, db outbox.DB, kind outbox.EventKind, aggregateID string) error {
	rows, name := pauseID(kind, aggregateID)
	q := s.query(256)
	q.add("DELETE FROM ").control(s).add(" WHERE kind = '" + rows + "' AND name = ").arg(name)
	_, err := s.changed(ctx, func() (int, error) { return s.exec(ctx, db, "resuming "+pausedText(kind, aggregateID), q) })
	return err
}

// Paused implements [outbox.Store]. A row whose end is no time, such as infinity, has no end.
func (s *Store) Paused(ctx context.Context, db outbox.DB) ([]outbox.Pause, error) {
	var list []outbox.Pause
	q := s.query(256)
	q.add("SELECT name, owner, value, ").timeColumn("expires_at").add(" FROM ").control(s).
		add(" WHERE kind IN ('pause', 'pause-key') AND (expires_at IS NULL OR expires_at > ").now().add(")")
	err := s.rows(ctx, db, "reading what is paused", q, func(rows *sql.Rows) error {
		var name string
		var owner, value sql.NullString
		var until timestamp
		if err := rows.Scan(&name, &owner, &value, &until); err != nil {
			return err
		}
		pause, err := readPause(name, value.String)
		if err == nil {
			pause.Until, pause.Automatic = until.Time, owner.String == automaticOwner
			list = append(list, pause)
		}
		return err
	})
	return list, err
}

// readPause reads the value of a row that pauses a kind of event or a key.
func readPause(name, value string) (outbox.Pause, error) {
	var row pauseRow
	if err := json.Unmarshal([]byte(value), &row); err != nil {
		return outbox.Pause{}, fmt.Errorf("row 'pause' or 'pause-key', '%.128s' of the control table has no valid value (%w); delete it, and pause the kind again", name, err)
	}
	kind := outbox.EventKind{AggregateType: row.AggregateType, EventType: row.EventType}
	return outbox.Pause{Kind: kind, AggregateID: row.AggregateID, Since: row.Since, Reason: row.Reason, By: row.By}, nil
}

// forgetPause deletes the row of a pause that ended. Processes of an older version know no ends: for
// them the kind is paused until the row is gone.
func (s *Store) forgetPause(ctx context.Context, db outbox.DB, rows, name string) error {
	q := s.query(256)
	q.add("DELETE FROM ").control(s).add(" WHERE kind = '" + rows + "' AND name = ").arg(name).add(" AND expires_at <= ").now()
	_, err := s.changed(ctx, func() (int, error) { return s.exec(ctx, db, "forgetting a pause that ended", q) })
	return err
}
