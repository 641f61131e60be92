package sqlstore

import (
	"context"
	"database/sql"

	"github.com/outboxkit/outbox-go/outbox"
)

// foundColumns are the columns that a listing reads of a row, in the order of found.fields.
var foundColumns = []string{"event_id", "event_type", "aggregate_type", "aggregate_id", "tenant_id", "attempts", "status", "locked_by"}

// found is a row of the table for operators.
type found struct {
	row
	listener listenerOf // of a list
	status   count
	lockedBy sql.NullString
	lockedAt timestamp
	doneAt   timestamp
	at       placeTime // of a walk in the order of a time
	undated  bool      // the time cannot be read
}

// found writes the columns of a row for operators.
func (q *query) found() *query {
	for _, c := range foundColumns {
		q.add(c, ", ")
	}
	for _, c := range []string{"created_at", "available_at", "locked_at"} {
		q.timeColumn(c).add(", ")
	}
	return q.timeColumn("done_at")
}

func (r *found) fields() []any {
	return []any{
		(*rowID)(&r.row), &r.eventType, &r.aggregateType, &r.aggregateID, &r.tenantID, &r.attempts, &r.status, &r.lockedBy,
		&r.createdAt, &r.availableAt, &r.lockedAt, &r.doneAt,
	}
}

// listenerOf holds the only headers that a list reads: the headers of a row for one of several
// listeners. The other headers may have 64 KiB, and no list shows them.
type listenerOf struct{ name, eventID sql.NullString }

// listener writes the columns of listenerOf.
func (q *query) listener() *query {
	return q.header(outbox.HeaderListener).add(", ").header(outbox.HeaderEventID)
}

// header writes a header as a column: NULL if the header is missing, or if the headers do not
// decode.
func (q *query) header(key string) *query {
	switch q.d.name {
	case postgres.name:
		return q.add("headers->>'", key, "'")
	case sqlite.name:
		return q.add("CASE WHEN json_valid(headers) THEN json_extract(headers, '$.\"", key, "\"') END")
	default:
		return q.add("JSON_UNQUOTE(JSON_EXTRACT(headers, '$.\"", key, "\"'))")
	}
}

func (l *listenerOf) fields() []any { return []any{&l.name, &l.eventID} }

// addTo gives an envelope of a list its headers.
func (l *listenerOf) addTo(env *outbox.Envelope) {
	if l.name.Valid {
		env.Headers = map[string]string{outbox.HeaderListener: l.name.String, outbox.HeaderEventID: l.eventID.String}
	}
}

// shownError is the last error as operators see it. Another program may have stored a longer text
// than the library stores.
const shownError = "SUBSTR(last_error, 1, 4000)"

// event is the row as operators see it, without the values that cannot be read.
func (s *Store) event(r *found) outbox.EventRow {
	env, _ := s.envelope(&r.row)
	r.listener.addTo(&env)
	event := outbox.EventRow{Envelope: env, Status: outbox.Status(r.status), LastError: r.lastError.String, Lease: r.lockedBy.String, LeasedAt: r.lockedAt.Time}
	if event.Status.Terminal() {
		if event.EndedAt = r.doneAt.Time; event.EndedAt.IsZero() {
			event.EndedAt = r.createdAt.Time
		}
	}
	return event
}

// FindEvents implements [outbox.Store]. FindEvents reads a few rows at first, and then four times
// as many with each statement, until the page is full or SearchLimit rows were read.
func (s *Store) FindEvents(ctx context.Context, db outbox.DB, q outbox.EventQuery) (outbox.Page[outbox.EventRow], error) {
	prefix, err := s.prefixWalk(ctx, db, q.IDPrefix)
	if err != nil {
		return outbox.Page[outbox.EventRow]{}, err
	}
	w := s.walkOf(q.EventFilter, prefix)
	place, err := w.order.After(q.After)
	if err != nil {
		return outbox.Page[outbox.EventRow]{}, err
	}
	var page outbox.Page[outbox.EventRow]
	begin, left := place, outbox.SearchLimit
	next := func() string {
		if place == begin { // no row of the page has a place that can be read
			return ""
		}
		return w.order.Next(place)
	}
	unplaced := 0 // rows behind the place that were looked at
	for n := q.Limit + 1; ; n *= 4 {
		n = min(n, left)
		rows, err := s.walked(ctx, db, w, place, n)
		if err != nil {
			return outbox.Page[outbox.EventRow]{}, err
		}
		looked := min(unplaced, len(rows))
		for i := range rows[looked:] {
			r := &rows[looked+i]
			if len(page.Rows) == q.Limit {
				page.Next = next()
				return page, nil
			}
			before := place
			if place = s.placeOf(w, r, place); place == before {
				unplaced++
			} else {
				unplaced = 0
			}
			page.Looked++
			if !r.lastError.Valid || !w.filter.HasTexts(r.id, r.lastError.String) {
				continue // the filter does not choose the row
			}
			page.Rows = append(page.Rows, s.event(r))
		}
		if len(rows) < n {
			return page, nil
		}
		if left -= n; left == 0 {
			page.Next, page.Missing = next(), s.missingIndex(w)
			return page, nil
		}
	}
}

// FindEvent implements [outbox.Store].
func (s *Store) FindEvent(ctx context.Context, db outbox.DB, eventID string) (outbox.EventRow, error) {
	q := s.query(512)
	q.add("SELECT ").found().add(", ", shownError, ", headers, ").payload("").add(" FROM ").table(s).add(" WHERE event_id = ").arg(eventID)
	var r found
	exists := false
	what := "reading event " + eventID
	err := s.rows(ctx, db, what, q, func(rows *sql.Rows) error {
		exists = true
		return rows.Scan(append(r.fields(), &r.lastError, &r.headers, &r.payload)...)
	})
	if err == nil && !exists {
		err = s.fail(what, outbox.ErrNotFound)
	}
	if err != nil {
		return outbox.EventRow{}, err
	}
	return s.event(&r), nil
}
