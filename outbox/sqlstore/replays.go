package sqlstore

import (
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// replayPace is how long after a step of a replay the next step may add rows.
const replayPace = time.Second

// replayOf is the row of the control table with the replay of a name. The name may have any characters.
func replayOf(name string) sharedRow {
	h := sha256.Sum256([]byte(name))
	return sharedRow{"replay", hex.EncodeToString(h[:])}
}

// Replays implements [outbox.Store].
func (s *Store) Replays(ctx context.Context, db outbox.DB) ([]outbox.ReplayRow, error) {
	var list []outbox.ReplayRow
	q := s.query(256).add("SELECT ")
	if s.d.now == "" {
		q.now()
	} else {
		q.timeColumn(s.d.now)
	}
	q.add(", owner, value, ").timeColumn("expires_at").add(" FROM ").control(s).add(" WHERE kind = 'replay' AND owner IS NOT NULL")
	err := s.rows(ctx, db, "reading the replays", q, func(rows *sql.Rows) error {
		var clock, next timestamp
		var version, value sql.NullString
		err := rows.Scan(&clock, &version, &value, &next)
		list = append(list, outbox.ReplayRow{Version: version.String, Value: value.String, NextAt: next.Time, Now: clock.Time})
		return err
	})
	return list, err
}

// SetReplay implements [outbox.Store]. The row is locked before any event is inserted: of two calls with
// the same version, the second waits, and then finds another version.
func (s *Store) SetReplay(ctx context.Context, db outbox.DB, was string, next outbox.ReplayRow, envs []outbox.Envelope) (bool, error) {
	what, row := fmt.Sprintf("setting replay %q", next.Name), replayOf(next.Name)
	switch {
	case s.err != nil:
		return false, s.err
	case next.Version == "":
		return false, s.fail(what, errors.New("the row has no version"))
	case s.d.name == "mysql" && len(next.Value) > maxControlValue:
		return false, s.fail(what, fmt.Errorf("the state of the replay is %d bytes, and the column value of the control table has room for %d", len(next.Value), maxControlValue))
	case next.Value == "":
		q := s.query(256).add("DELETE FROM ").control(s).add(" WHERE ").is(row).add(" AND owner = ").arg(was)
		n, err := s.changed(ctx, func() (int, error) { return s.exec(ctx, db, what, q) })
		return n > 0, err
	case was == "":
		if err := s.insertControl(ctx, db, what, row); err != nil {
			return false, err
		}
	}
	_, err := s.changed(ctx, func() (int, error) {
		return 0, s.inTx(ctx, db, what, nil, func(tx *sql.Tx) error { return s.stepReplay(ctx, tx, what, row, was, next, envs) })
	})
	if errors.Is(err, errStale) {
		return false, nil
	}
	return err == nil, err
}

// stepReplay replaces the row of a replay, and inserts events. It fails with errStale if the row must not
// be replaced.
func (s *Store) stepReplay(ctx context.Context, tx *sql.Tx, what string, row sharedRow, was string, next outbox.ReplayRow, envs []outbox.Envelope) error {
	q := s.query(512).add("UPDATE ").control(s).add(" SET owner = ").arg(next.Version).add(", value = ").arg(next.Value)
	if len(envs) > 0 {
		q.add(", expires_at = ").fromNow(replayPace)
	}
	q.add(" WHERE ").is(row)
	if was == "" {
		q.add(" AND owner IS NULL")
	} else {
		q.add(" AND owner = ").arg(was)
	}
	if len(envs) > 0 {
		q.add(" AND (expires_at IS NULL OR expires_at <= ").now().add(")")
	}
	n, err := s.exec(ctx, tx, what, q)
	if err != nil || n == 0 {
		return cmp.Or(err, errStale)
	}
	chunks := s.chunked(nil, envs, "")
	for i := range chunks {
		chunks[i].absent = true
	}
	return s.insertChunks(ctx, tx, chunks)
}

// deliveredBytes is the size of the payloads after which Delivered reads no further events.
const deliveredBytes = 4 << 20

// deliveredRow is a DONE row that Delivered looked at.
type deliveredRow struct {
	row
	at    placeTime
	bytes sql.NullInt64 // of the payload; NULL: the query does not choose the row
}

// Delivered implements [outbox.Store]. Two statements: the first looks at rows in the order of the index
// and asks for the keys alone, the second reads the events that are chosen. Until is compared here: a
// database that knows no statistics would take two bounds for a reason to sort.
func (s *Store) Delivered(ctx context.Context, db outbox.DB, in outbox.DeliveredQuery) (outbox.Delivered, error) {
	found := outbox.Delivered{DoneAt: in.AfterDoneAt, EventID: in.AfterEventID}
	rows, err := s.lookDelivered(ctx, db, in)
	if err != nil {
		return found, err
	}
	found.End = len(rows) < in.Look
	var ids []string
	size := int64(0)
	for i := range rows {
		r := &rows[i]
		if r.at.IsZero() || !r.at.Before(in.Until) { // such as infinity
			found.End = true
			break
		}
		if len(ids) == in.Limit || len(ids) > 0 && size+r.bytes.Int64 > deliveredBytes {
			found.End = false
			break
		}
		found.Looked++
		if !r.at.exact { // a time that is not in the calendar: the next place is behind all times like it
			found.DoneAt, found.EventID = r.at.Add(time.Microsecond), ""
			continue
		}
		found.DoneAt, found.EventID = r.at.Time, r.id
		if r.bytes.Valid {
			ids, size = append(ids, r.id), size+r.bytes.Int64
		}
	}
	found.Events, found.Unreadable, err = s.readDelivered(ctx, db, ids)
	return found, err
}

// lookDelivered reads the keys of the DONE rows behind a place.
func (s *Store) lookDelivered(ctx context.Context, db outbox.DB, in outbox.DeliveredQuery) ([]deliveredRow, error) {
	column := s.died()
	var all []deliveredRow
	build := func(from string) *query {
		q := s.query(1024).ordered().add("SELECT event_id, ").placeColumn(column).add(" AS done, ").chosenDelivered(in).add(" AS bytes")
		q.add(" FROM ", from, " WHERE status = 1")
		if s.d == sqlite { // texts and bytes are behind all numbers
			q.add(" AND typeof(", column, ") = 'integer' AND typeof(event_id) = 'text'")
		}
		switch {
		case in.AfterEventID == "":
			q.add(" AND ", column, " >= ").time(in.AfterDoneAt)
		case s.d == mysql:
			q.add(" AND (", column, " > ").time(in.AfterDoneAt).add(" OR ", column, " = ").time(in.AfterDoneAt).add(" AND event_id > ").arg(in.AfterEventID).add(")")
		default:
			q.add(" AND ", column, " >= ").time(in.AfterDoneAt).
				add(" AND (", column, " > ").time(in.AfterDoneAt).add(" OR event_id > ").arg(in.AfterEventID).add(")")
		}
		return q.add(" ORDER BY ", column, ", event_id LIMIT ").limit(in.Look, "")
	}
	err := s.rowsByIndex(ctx, db, "done", "looking for delivered events", build, func(rows *sql.Rows) error {
		var r deliveredRow
		err := rows.Scan((*rowID)(&r.row), &r.at, &r.bytes)
		all = append(all, r)
		return err
	})
	return all, err
}

// chosenDelivered writes the length of the payload of a row that the query chooses, and NULL for others.
// In a CASE no condition makes a database choose another index.
func (q *query) chosenDelivered(in outbox.DeliveredQuery) *query {
	kinds := make([]outbox.EventKind, len(in.EventTypes))
	for i, eventType := range in.EventTypes {
		kinds[i] = outbox.EventKind{AggregateType: in.AggregateType, EventType: eventType}
	}
	q.add("CASE WHEN CASE").ofKinds(kinds, "TRUE").add(" ELSE FALSE END").
		equal("aggregate_id", in.AggregateID).equal("tenant_id", in.TenantID)
	q.add(" AND (locked_by IS NULL OR locked_by NOT LIKE '" + outbox.DeletedBy + "%') AND ").header(outbox.HeaderListener).add(" IS NULL")
	return q.add(" THEN ", q.d.payloadBytes, " END")
}

// readDelivered reads the events with these ids that are still DONE, in the order of the ids, and counts
// the events that cannot be read.
func (s *Store) readDelivered(ctx context.Context, db outbox.DB, ids []string) (events []outbox.Envelope, unreadable int, err error) {
	byID := make(map[string]outbox.Envelope, len(ids))
	for chunk := range slices.Chunk(ids, markRows) {
		q := s.query(512 + 2*len(chunk))
		q.add("SELECT ").columns("").add(" FROM ").table(s).add(" WHERE ").ids("event_id", chunk).still("status = 1")
		var r row
		err := s.rows(ctx, db, fmt.Sprintf("reading %d delivered events", len(chunk)), q, func(rows *sql.Rows) error {
			if err := rows.Scan(r.fields()...); err != nil {
				return err
			}
			env, err := s.envelope(&r)
			if cmp.Or(s.problem(&r), err) != nil {
				unreadable++
				return nil
			}
			byID[env.EventID] = env
			return nil
		})
		if err != nil {
			return nil, 0, err
		}
	}
	for _, id := range ids {
		if env, is := byID[id]; is {
			events = append(events, env)
		}
	}
	return events, unreadable, nil
}

// Added implements [outbox.Store].
func (s *Store) Added(ctx context.Context, db outbox.DB, eventIDs []string) (added outbox.AddedRows, err error) {
	const failed = "CASE WHEN status = 3 OR status = 2 AND attempts > 0 THEN "
	for chunk := range slices.Chunk(eventIDs, markRows) {
		q := s.query(512 + 2*len(chunk))
		q.add("SELECT COUNT(CASE WHEN status IN (0, 2) AND attempts = 0 THEN 1 END), COUNT(", failed, "1 END), MAX(", failed, shownError, " END)")
		q.add(" FROM ").table(s).add(" WHERE ").ids("event_id", chunk)
		var n outbox.AddedRows
		var lastError sql.NullString
		err := s.rows(ctx, db, "counting events that were not tried or failed", q, func(rows *sql.Rows) error {
			return rows.Scan(&n.Untried, &n.Failed, &lastError)
		})
		if err != nil {
			return outbox.AddedRows{}, err
		}
		added.Untried, added.Failed = added.Untried+n.Untried, added.Failed+n.Failed
		added.LastError = cmp.Or(added.LastError, lastError.String)
	}
	return added, s.err
}
