package sqlstore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// rangesRow is the row of the control table with the ranges that processes deliver.
var rangesRow = sharedRow{"ranges", "table"}

// rangeRow is a range in the value of rangesRow. Times are microseconds since 1970.
type rangeRow struct {
	Name  string    `json:"n"`
	After *placeRow `json:"a,omitempty"`
	Upto  *placeRow `json:"u,omitempty"`
	Until int64     `json:"t"`
}

// placeRow is a place in the value of rangesRow.
type placeRow struct {
	AvailableAt int64  `json:"a"`
	CreatedAt   int64  `json:"c"`
	EventID     string `json:"e"`
}

// Ranges implements [outbox.Store].
func (s *Store) Ranges(ctx context.Context, db outbox.DB) (outbox.Ranges, error) {
	const what = "reading the ranges"
	version, value, now, err := s.readShared(ctx, db, what, rangesRow)
	if err != nil || !version.Valid {
		return outbox.Ranges{Now: now}, err
	}
	list, err := readRanges(value.String)
	if err != nil {
		return outbox.Ranges{}, s.fail(what, err)
	}
	return outbox.Ranges{Version: version.String, Now: now, Ranges: list}, nil
}

// writeRanges makes the value of rangesRow.
func writeRanges(ranges []outbox.Range) (string, error) {
	rows := make([]rangeRow, len(ranges))
	for i, r := range ranges {
		rows[i] = rangeRow{r.Name, rowOfPlace(r.After), rowOfPlace(r.Upto), r.Until.UnixMicro()}
	}
	value, err := json.Marshal(rows)
	return string(value), err
}

// readRanges reads the value of rangesRow.
func readRanges(value string) ([]outbox.Range, error) {
	var rows []rangeRow
	if err := json.Unmarshal([]byte(value), &rows); err != nil {
		return nil, fmt.Errorf("row 'ranges', 'table' of the control table has no valid value (%d bytes); delete the row; events that are in delivery may then be delivered twice", len(value))
	}
	ranges := make([]outbox.Range, len(rows))
	for i, r := range rows {
		ranges[i] = outbox.Range{Name: r.Name, After: r.After.cursor(), Upto: r.Upto.cursor(), Until: microTime(r.Until)}
	}
	return ranges, nil
}

func (p *placeRow) cursor() outbox.Cursor {
	if p == nil {
		return outbox.Cursor{}
	}
	return outbox.Cursor{AvailableAt: microTime(p.AvailableAt), CreatedAt: microTime(p.CreatedAt), EventID: p.EventID}
}

// rowOfPlace is nil for the zero place.
func rowOfPlace(c outbox.Cursor) *placeRow {
	if c.IsZero() {
		return nil
	}
	return &placeRow{c.AvailableAt.UnixMicro(), c.CreatedAt.UnixMicro(), c.EventID}
}

func microTime(micros int64) time.Time { return time.UnixMicro(micros).UTC() }

// SetRanges implements [outbox.Store].
func (s *Store) SetRanges(ctx context.Context, db outbox.DB, was string, by time.Time, next outbox.Ranges) (bool, error) {
	what := fmt.Sprintf("setting %d ranges", len(next.Ranges))
	value, err := writeRanges(next.Ranges)
	if err == nil && next.Version == "" {
		err = errors.New("they have no version")
	}
	if err = cmp.Or(s.err, err); err != nil {
		return false, s.fail(what, err)
	}
	return s.setShared(ctx, db, what, rangesRow, was, next.Version, value, func(q *query) {
		q.add(" AND ").now().add(" <= ").time(by)
		if s.d == postgres && !holdsTable(next) {
			// The commit does not wait for the log, and the next process does not wait for the commit. A
			// server that crashes may forget the last ranges, so that events are delivered twice. A hold
			// is not forgotten.
			q.add(" AND set_config('synchronous_commit', 'off', true) IS NOT NULL")
		}
	})
}

// holdsTable reports whether a process has the right to all rows.
func holdsTable(ranges outbox.Ranges) bool {
	return slices.ContainsFunc(ranges.Ranges, func(r outbox.Range) bool { return r.Upto.IsZero() })
}

// Reach implements [outbox.Store].
func (s *Store) Reach(ctx context.Context, db outbox.DB, p outbox.PollQuery) (outbox.Reach, error) {
	const what = "looking for due events"
	if s.d == postgres {
		return s.reachAtOnce(ctx, db, what, p)
	}
	var reach outbox.Reach
	var r row
	all, err := s.readDue(ctx, db, what, p, func(q *query) *query { return q.place() }, &r, (*rowID)(&r), &r.createdAt, &r.availableAt)
	if err != nil || len(all) == 0 {
		return reach, err
	}
	for i := range all {
		if all[i].lease.Valid {
			reach.Expired++
		} else {
			reach.Fresh++
		}
	}
	reach.End = s.cursorOf(all, p.After)
	return reach, nil
}

// place writes the columns of a row's place.
func (q *query) place() *query {
	return q.add("event_id, ").timeColumn("created_at").add(" AS created, ").timeColumn("available_at").add(" AS available")
}

// reachAtOnce is Reach for PostgreSQL, which counts the rows and returns a single row. The arrays have
// the rows in the order of the index. A sort of all rows for the last one takes twice as long.
func (s *Store) reachAtOnce(ctx context.Context, db outbox.DB, what string, p outbox.PollQuery) (outbox.Reach, error) {
	var reach outbox.Reach
	var last row
	const placed = " FILTER (WHERE created IS NOT NULL AND available IS NOT NULL)"
	q := s.query(1024).add("SELECT due, expired, ids[placed], createds[placed], availables[placed] FROM (SELECT COUNT(*) AS due, COALESCE(SUM(leased), 0) AS expired,"+
		" COUNT(*)"+placed+" AS placed, ARRAY_AGG(event_id)"+placed+" AS ids, ARRAY_AGG(created)"+placed+" AS createds, ARRAY_AGG(available)"+placed+
		" AS availables FROM (").ordered().add("SELECT ").place().add(", CASE WHEN locked_at IS NULL THEN 0 ELSE 1 END AS leased FROM ").table(s).
		add(" WHERE ").read(s.pending()[0], p).add(dueOrder).limit(p.Limit, "").add(") AS due) AS reach")
	rows := 0
	err := s.rows(ctx, db, what, q, scanInto(&rows, &reach.Expired, (*rowID)(&last), &last.createdAt, &last.availableAt))
	reach.Fresh = rows - reach.Expired
	if rows > 0 {
		reach.End = s.cursorOf([]row{last}, p.After)
	}
	return reach, err
}
