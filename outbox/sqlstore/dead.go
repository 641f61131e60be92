package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/outboxkit/outbox-go/internal/sqlerr"
	"github.com/outboxkit/outbox-go/outbox"
)

const diedAt = "COALESCE(done_at, created_at)"

// died is the time of an event's end, as in the index. A row that another program ended may have no
// done_at. The index of MySQL does not have the time of such rows, because not every version can
// index an expression.
func (s *Store) died() string {
	if s.d.name == "mysql" {
		return "done_at"
	}
	return diedAt
}

// deadParts are all dead rows, undated rows first. MySQL reads rows without done_at by
// separate statements, because the index has no time of such rows, and because COALESCE makes
// NULL of a time that cannot be read.
func (s *Store) deadParts() []timePart {
	var parts, dated []timePart
	add := func(column, where string) {
		of, undated := s.timeParts(column, where)
		parts, dated = append(parts, undated...), append(dated, of)
	}
	if s.d.name == "mysql" {
		add("done_at", "status = 3 AND done_at IS NOT NULL")
		add("created_at", "status = 3 AND done_at IS NULL")
	} else {
		add(diedAt, "status = 3")
	}
	return append(parts, dated...)
}

// dead writes the condition for the dead rows that a filter selects. Rows that are named
// are found by primary key: within a CASE no index serves the other conditions.
func (q *query) dead(part timePart, f outbox.DeadFilter) *query {
	if len(f.EventIDs) > 0 {
		return q.ids("event_id", f.EventIDs).add(" AND CASE WHEN ").deadWith(part, f).add(" THEN TRUE ELSE FALSE END")
	}
	return q.deadWith(part, f)
}

func (q *query) deadWith(part timePart, f outbox.DeadFilter) *query {
	q.add(part.where).equal("event_type", string(f.EventType)).equal(aggregateTypeColumn, string(f.AggregateType)).
		equal("aggregate_id", f.AggregateID).equal("tenant_id", f.TenantID)
	if part.undated { // before all times
		return q
	}
	if !f.Since.IsZero() {
		q.add(" AND ", part.time, " >= ").time(f.Since)
	}
	if !f.Until.IsZero() {
		q.add(" AND ", part.time, " < ").time(f.Until)
	}
	return q
}

// QueryDead implements [outbox.Store].
func (s *Store) QueryDead(ctx context.Context, db outbox.DB, d outbox.DeadRowsQuery) ([]outbox.DeadLetter, error) {
	var undated, dated []outbox.DeadLetter
	for _, part := range s.deadParts() {
		if part.undated && (!d.Since.IsZero() || !d.AfterDiedAt.IsZero()) {
			continue
		}
		of, err := s.queryDead(ctx, db, part, d)
		switch {
		case err != nil:
			return nil, err
		case part.undated:
			undated = merged(undated, of)
		default:
			dated = merged(dated, of)
		}
	}
	letters := dated
	if len(undated) > 0 {
		letters = append(undated, dated...)
	}
	return letters[:min(len(letters), d.Limit)], nil
}

// merged returns the letters of several statements. The letters of a single statement keep the
// order of the database.
func merged(letters, more []outbox.DeadLetter) []outbox.DeadLetter {
	if len(letters) == 0 {
		return more
	}
	if len(more) == 0 {
		return letters
	}
	letters = append(letters, more...)
	sortRows(letters, func(a, b outbox.DeadLetter) int {
		return cmp.Or(a.DiedAt.Compare(b.DiedAt), cmp.Compare(a.EventID, b.EventID))
	})
	return letters
}

func (s *Store) queryDead(ctx context.Context, db outbox.DB, part timePart, d outbox.DeadRowsQuery) ([]outbox.DeadLetter, error) {
	byIndex := d.AfterEventID != "" && part.time == "done_at" && !part.undated
	build := func(from string) *query {
		q := s.query(512).ordered().add("SELECT event_id, ").placeColumn(part.time)
		if !d.KeysOnly {
			q.listedLetter(d.Listed)
		}
		q.add(" FROM ", from, " WHERE ").dead(part, d.DeadFilter)
		if part.undated {
			return q.undatedBehind(s, part, " > ", d.AfterEventID).add(" LIMIT ").limit(d.Limit, "")
		}
		place := outbox.Cursor{AvailableAt: d.AfterDiedAt, EventID: d.AfterEventID}
		died := q.ended(s, part.time, diedAt, place)
		switch {
		case d.AfterDiedAt.IsZero() || d.AfterEventID == "": // from the first row on
		case byIndex:
			q.from(part.time, died, place).
				add(" AND (", died.left, " > ").call(died.value).add(" OR ", died.left, " = ").call(died.value).add(" AND event_id > ").arg(d.AfterEventID).add(")")
		default:
			q.from(part.time, died, place).
				add(" AND ", died.left, " >= ").call(died.value).add(" AND (", died.left, " > ").call(died.value).add(" OR event_id > ").arg(d.AfterEventID).add(")")
		}
		return q.add(" ORDER BY ", part.time, ", event_id LIMIT ").limit(d.Limit, "")
	}
	const what = "listing dead letters"
	var letters []outbox.DeadLetter
	scan := func(rows *sql.Rows) error {
		letter, err := s.scanListed(rows, &d)
		if part.undated {
			letter.DiedAt = time.Time{}
		}
		letters = append(letters, letter)
		return err
	}
	var err error
	if byIndex {
		err = s.rowsByIndex(ctx, db, "done", what, build, scan)
	} else {
		err = s.rows(ctx, db, what, build(s.name().Quoted(s.d.quote)), scan)
	}
	if err != nil {
		return nil, err
	}
	return letters, nil
}

// listedLetter writes the columns that filters and groups compare, apart from the id and the time of
// death, or the columns that a list shows. The payload stays in the database.
func (q *query) listedLetter(listed bool) *query {
	q.add(", event_type, aggregate_type, aggregate_id, tenant_id, ").header(outbox.HeaderListener).add(", ", shownError)
	if listed {
		q.add(", ").header(outbox.HeaderEventID).add(", attempts, ").timeColumn("created_at").add(", ").timeColumn("available_at").add(", ", q.d.payloadBytes)
	}
	return q
}

// scanListed reads the columns of a letter in a list.
func (s *Store) scanListed(rows *sql.Rows, d *outbox.DeadRowsQuery) (outbox.DeadLetter, error) {
	var r row
	var died placeTime
	var listener listenerOf
	var bytes count
	fields := []any{(*rowID)(&r), &died}
	if !d.KeysOnly {
		fields = append(fields, &r.eventType, &r.aggregateType, &r.aggregateID, &r.tenantID, &listener.name, &r.lastError)
	}
	if !d.KeysOnly && d.Listed {
		fields = append(fields, &listener.eventID, &r.attempts, &r.createdAt, &r.availableAt, &bytes)
	}
	if err := rows.Scan(fields...); err != nil {
		return outbox.DeadLetter{}, err
	}
	if d.KeysOnly {
		return outbox.DeadLetter{Envelope: outbox.Envelope{EventID: s.idOf(&r)}, DiedAt: died.Time}, nil
	}
	env, _ := s.envelope(&r) // operators see all that can be read
	listener.addTo(&env)
	return outbox.DeadLetter{Envelope: env, LastError: r.lastError.String, DiedAt: died.Time, PayloadBytes: max(int(bytes), 0)}, nil
}

// GetDead implements [outbox.Store].
func (s *Store) GetDead(ctx context.Context, db outbox.DB, eventID string) (outbox.DeadLetter, error) {
	q := s.query(512)
	q.add("SELECT ").columns("").add(", ", shownError, ", ").placeColumn(diedAt).
		add(" FROM ").table(s).add(" WHERE event_id = ").arg(eventID).still("status = 3")
	var r row
	var died placeTime
	found := false
	what := "reading dead letter " + eventID
	err := s.rows(ctx, db, what, q, func(rows *sql.Rows) error {
		found = true
		return rows.Scan(append(r.fields(), &r.lastError, &died)...)
	})
	if err == nil && !found {
		err = s.fail(what, outbox.ErrNotFound)
	}
	if err != nil {
		return outbox.DeadLetter{}, err
	}
	env, _ := s.envelope(&r) // operators see all that can be read
	return outbox.DeadLetter{Envelope: env, LastError: r.lastError.String, DiedAt: died.Time, PayloadBytes: len(r.payload.String)}, nil
}

// CountDead implements [outbox.Store].
func (s *Store) CountDead(ctx context.Context, db outbox.DB, f outbox.DeadFilter) (int64, error) {
	total := int64(0)
	for _, part := range s.deadParts() {
		if part.undated && !f.Since.IsZero() {
			continue
		}
		q := s.query(256)
		q.add("SELECT COUNT(*) FROM ").table(s).add(" WHERE ").dead(part, f)
		var n int64
		if err := s.rows(ctx, db, "counting dead letters", q, scanInto(&n)); err != nil {
			return 0, err
		}
		total += n
	}
	return total, nil
}

// ReplayDead implements [outbox.Store].
func (s *Store) ReplayDead(ctx context.Context, db outbox.DB, eventIDs []string, now time.Time, to outbox.Status) (int, error) {
	n, taken, err := s.replay(ctx, db, eventIDs, now, to)
	if err == nil && len(taken) > 0 {
		err = &outbox.KeyTakenError{EventID: taken[0], Letters: len(taken)}
	}
	return n, err
}

// replay replays dead letters, and returns the ids of those whose unique key is taken. A statement that
// meets such a letter changes nothing: replay divides its letters until each such letter is alone.
func (s *Store) replay(ctx context.Context, db outbox.DB, eventIDs []string, now time.Time, to outbox.Status) (total int, taken []string, err error) {
	for chunk := range slices.Chunk(eventIDs, markRows) {
		n, err := s.replayTogether(ctx, db, chunk, now, to)
		switch {
		case !sqlerr.IsDuplicate(err):
			total += n
		case len(chunk) == 1:
			taken, err = append(taken, chunk[0]), nil
		default:
			err = nil
			for _, half := range [][]string{chunk[:len(chunk)/2], chunk[len(chunk)/2:]} {
				n, more, failed := s.replay(ctx, db, half, now, to)
				total, taken, err = total+n, append(taken, more...), cmp.Or(err, failed)
			}
		}
		if err != nil {
			return total, taken, err
		}
	}
	return total, taken, s.err
}

func (s *Store) replayTogether(ctx context.Context, db outbox.DB, eventIDs []string, now time.Time, to outbox.Status) (int, error) {
	return s.eachDead(ctx, db, "replaying", eventIDs, dead, func(q *query) {
		q.add("UPDATE ").table(s).add(" SET status = ").arg(int(to)).add(", attempts = 0, available_at = ").time(now).
			add(", last_error = NULL, done_at = NULL, ", unlock)
	})
}

// diedAtOf is done_at as a deleted dead letter keeps it. A strict session of MySQL refuses to store a date
// that is not in the calendar, although the row has it already. Functions that would say so, such as
// LAST_DAY, fail for the same reason.
var diedAtOf = map[string]string{
	postgres.name: "done_at", sqlite.name: "done_at",
	mysql.name: "CASE WHEN done_at >= '0001-01-02' AND MONTH(done_at) > 0 AND DAYOFMONTH(done_at) > 0 AND DAYOFMONTH(done_at) <=" +
		" CASE WHEN MONTH(done_at) = 2 THEN 28 + (YEAR(done_at) % 4 = 0 AND (YEAR(done_at) % 100 <> 0 OR YEAR(done_at) % 400 = 0))" +
		" WHEN MONTH(done_at) IN (4, 6, 9, 11) THEN 30 ELSE 31 END THEN done_at END",
}

// DeleteDead implements [outbox.Store]. MySQL assigns from left to right, so the time of death is copied
// first.
func (s *Store) DeleteDead(ctx context.Context, db outbox.DB, eventIDs []string, by string, at time.Time) (int, error) {
	return s.eachDead(ctx, db, "deleting", eventIDs, dead, func(q *query) {
		if by == "" {
			q.add("DELETE FROM ").table(s)
			return
		}
		q.add("UPDATE ").table(s).add(" SET status = 1, locked_at = ", diedAtOf[q.d.name], ", done_at = ").time(at).add(", locked_by = ").arg(by)
	})
}

// RestoreDead implements [outbox.Store].
func (s *Store) RestoreDead(ctx context.Context, db outbox.DB, d outbox.DeletedQuery) (r outbox.Restored, err error) {
	q := s.query(256)
	q.ordered().add("SELECT event_id, ").timeColumn("done_at").add(" FROM ").table(s).deleted(s, d).add(" ORDER BY ", s.died(), " LIMIT ").limit(d.Limit, "")
	var ids []string
	err = s.rows(ctx, db, "looking for deleted dead letters", q, func(rows *sql.Rows) error {
		var found row
		var at timestamp
		err := rows.Scan((*rowID)(&found), &at)
		ids, r.Last = append(ids, s.idOf(&found)), at.Time
		return err
	})
	if r.Looked = len(ids); err != nil {
		return r, err
	}
	deleted := func(q *query) { q.still("status = 1").add(" AND locked_by = ").arg(d.By) }
	r.Rows, err = s.eachDead(ctx, db, "restoring", ids, deleted, func(q *query) {
		q.add("UPDATE ").table(s).add(" SET status = 3, done_at = locked_at, ", unlock)
	})
	return r, err
}

// CountDeleted implements [outbox.Store].
func (s *Store) CountDeleted(ctx context.Context, db outbox.DB, d outbox.DeletedQuery) (n int64, err error) {
	q := s.query(256)
	q.add("SELECT COUNT(*) FROM (SELECT 1 AS one FROM ").table(s).deleted(s, d).add(" LIMIT ").arg(d.Limit).add(") AS counted")
	return n, s.rows(ctx, db, "counting deleted dead letters", q, scanInto(&n))
}

// deleted writes the condition for the rows of a deletion, which the index on DONE rows finds.
func (q *query) deleted(s *Store, d outbox.DeletedQuery) *query {
	q.add(" WHERE status = 1").span(s.died(), d.Since, d.Until)
	return q.add(" AND locked_by = ").arg(d.By)
}

// dead writes the condition for a dead letter that is found by its id.
func dead(q *query) { q.still("status = 3") }

// eachDead carries out a statement for the rows with these ids that have a state.
func (s *Store) eachDead(ctx context.Context, db outbox.DB, verb string, eventIDs []string, state, statement func(*query)) (int, error) {
	total := 0
	for chunk := range slices.Chunk(eventIDs, markRows) {
		q := s.query(256 + 2*len(chunk))
		statement(q)
		q.add(" WHERE ").ids("event_id", chunk)
		state(q)
		n, err := s.changed(ctx, func() (int, error) {
			return s.exec(ctx, db, fmt.Sprintf("%s %d dead letters, beginning with %s,", verb, len(chunk), chunk[0]), q)
		})
		total += n
		if err != nil {
			return total, err
		}
	}
	return total, s.err
}

// statsLimit is a text, so that PostgreSQL's planner knows that no more rows are read, also in a plan for
// any parameters.
var statsLimit = strconv.Itoa(outbox.StatsLimit)

// Stats implements [outbox.Store]. Whether a kind is paused is decided here: a database would compare each
// row with each paused kind.
func (s *Store) Stats(ctx context.Context, db outbox.DB, now time.Time, paused []outbox.EventKind) (outbox.StoreStats, error) {
	var st outbox.StoreStats
	for _, pending := range s.pending() {
		q := s.query(1024)
		q.add("SELECT ").counted(s, pending, "available_at <= ", now).add(", ").counted(s, pending, "available_at > ", now)
		if len(paused) == 0 {
			q.add(", ").oldestDue(s, pending, now, nil)
		} else {
			q.add(", NULL")
		}
		var due, delayed int64
		var oldest timestamp
		if err := s.rows(ctx, db, "reading stats", q, scanInto(&due, &delayed, &oldest)); err != nil {
			return outbox.StoreStats{}, err
		}
		if len(paused) > 0 {
			duePaused, first, err := s.pastPaused(ctx, db, pending, now, paused)
			if err != nil {
				return outbox.StoreStats{}, err
			}
			st.DuePaused, oldest.Time = min(st.DuePaused+duePaused, outbox.StatsLimit), first
		}
		st.Due = min(st.Due+due, outbox.StatsLimit)
		st.Delayed = min(st.Delayed+delayed, outbox.StatsLimit)
		if !oldest.IsZero() && (st.OldestDue.IsZero() || oldest.Before(st.OldestDue)) {
			st.OldestDue = oldest.Time
		}
	}
	q := s.query(256)
	q.add("SELECT ").counted(s, "status = 3", "", time.Time{})
	return st, s.rows(ctx, db, "reading stats", q, scanInto(&st.Dead))
}

// oldestDue writes the available_at of the first due row whose kind is not paused.
func (q *query) oldestDue(s *Store, pending string, now time.Time, paused []outbox.EventKind) *query {
	return q.add("(SELECT ").timeColumn("available_at").add(" FROM ").table(s).add(" WHERE ", pending, " AND available_at <= ").
		time(now).except(paused).add(dueOrder).add("1)")
}

// pastPaused counts the rows of paused kinds among the first StatsLimit due rows, and returns the
// available_at of the first due row of another kind; zero: there is no such row.
func (s *Store) pastPaused(ctx context.Context, db outbox.DB, pending string, now time.Time, paused []outbox.EventKind) (n int64, oldest time.Time, err error) {
	err = s.eachDueKind(ctx, db, "reading stats", pending, outbox.DueKindsQuery{Now: now}, func(due outbox.DueKind) {
		switch {
		case slices.Contains(paused, due.Kind):
			n += due.Events
		case !due.Oldest.IsZero() && (oldest.IsZero() || due.Oldest.Before(oldest)):
			oldest = due.Oldest
		}
	})
	if err != nil || n < outbox.StatsLimit {
		return n, oldest, err
	}
	var first timestamp // behind more rows of paused kinds
	err = s.rows(ctx, db, "reading stats", s.query(1024).add("SELECT ").oldestDue(s, pending, now, paused), scanInto(&first))
	return n, first.Time, err
}

// DueKinds implements [outbox.Inspector]. On MySQL it reads up to StatsLimit rows of each status. The rows
// that are left out are read past.
func (s *Store) DueKinds(ctx context.Context, db outbox.DB, in outbox.DueKindsQuery) ([]outbox.DueKind, error) {
	found := map[outbox.EventKind]outbox.DueKind{}
	for _, pending := range s.pending() {
		err := s.eachDueKind(ctx, db, "reading how long events have been due", pending, in, func(more outbox.DueKind) {
			due := found[more.Kind]
			due.Kind, due.Events = more.Kind, due.Events+more.Events
			if !more.Oldest.IsZero() && (due.Oldest.IsZero() || more.Oldest.Before(due.Oldest)) {
				due.Oldest = more.Oldest
			}
			found[more.Kind] = due
		})
		if err != nil {
			return nil, err
		}
	}
	return slices.Collect(maps.Values(found)), nil
}

// eachDueKind calls do with each kind of the first StatsLimit rows of the query, perhaps several times.
func (s *Store) eachDueKind(ctx context.Context, db outbox.DB, what, pending string, in outbox.DueKindsQuery, do func(outbox.DueKind)) error {
	q := s.query(1024)
	q.add("SELECT event_type, aggregate_type, COUNT(*), MIN(").timeColumn("available_at").
		add(") FROM (SELECT event_type, aggregate_type, available_at FROM ").table(s).add(" WHERE ", pending, " AND available_at <= ").time(in.Now)
	if len(in.Except)+len(in.Limits) > 0 {
		q.add(" AND CASE").notOf(in.Except)
		for _, limit := range in.Limits {
			q.ofKinds([]outbox.EventKind{limit.Kind}, "available_at <= ").time(limit.Before)
		}
		q.add(" ELSE TRUE END")
	}
	q.add(dueOrder, statsLimit, ") AS due GROUP BY event_type, aggregate_type")
	return s.rows(ctx, db, what, q, func(rows *sql.Rows) error {
		var eventType, aggregateType sql.NullString
		var n int64
		var oldest timestamp
		if err := rows.Scan(&eventType, &aggregateType, &n, &oldest); err != nil {
			return err
		}
		kind := outbox.EventKind{AggregateType: outbox.Global, EventType: outbox.EventType(eventType.String)}
		if aggregateType.Valid {
			kind.AggregateType = outbox.AggregateType(aggregateType.String)
		}
		do(outbox.DueKind{Kind: kind, Events: n, Oldest: oldest.Time})
		return nil
	})
}

// counted writes a count that stops at [outbox.StatsLimit].
func (q *query) counted(s *Store, status, condition string, at time.Time) *query {
	q.add("(SELECT COUNT(*) FROM (SELECT 1 AS one FROM ").table(s).add(" WHERE ", status)
	if condition != "" {
		q.add(" AND ", condition).time(at)
	}
	return q.add(" LIMIT ").arg(outbox.StatsLimit).add(") AS counted)")
}
