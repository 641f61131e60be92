package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// walk is how FindEvents goes through the table: along a single index, whatever else the filter
// says. The WHERE has only columns of this index, so that no statistics make a database choose
// another plan.
type walk struct {
	filter outbox.EventFilter
	order  outbox.EventOrder
	// search: along the index of WithSearchIndex.
	search bool
	// prefix: how the walk finds the ids that begin with a text.
	prefix prefixWalk
	// time is the column that Since and Until compare. inOrder: the walk is in the order of this
	// column.
	time    string
	inOrder bool
	// parts are the rows that each statement reads. The undated rows come behind all other rows.
	parts, undated []timePart
	mysql          bool
}

func (s *Store) walkOf(f outbox.EventFilter, prefix prefixWalk) walk {
	w := walk{filter: f, order: f.Order(), prefix: prefix, time: "created_at", mysql: s.d.name == "mysql"}
	if s.hasOption("search") && f.AggregateID != "" && !prefix.isIndexed() {
		w.order, w.search = outbox.ByEventID, true
	}
	var statuses []string
	switch w.order {
	case outbox.ByEventID:
		w.parts = []timePart{{where: "1 = 1"}}
		return w
	case outbox.ByDueTime:
		w.time, statuses = "available_at", s.pending()
	case outbox.ByEndTime:
		w.time, statuses = s.died(), []string{fmt.Sprint("status = ", int(f.Statuses[0]))}
	}
	w.inOrder = true
	if w.mysql {
		statuses = only(f.Statuses...)
	}
	for _, status := range statuses {
		if w.time == "done_at" { // the index has rows without done_at in the order of their ids
			w.undated = append(w.undated, timePart{where: status + " AND done_at IS NULL", undated: true, indexed: true})
			status += " AND done_at IS NOT NULL"
		}
		dated, undated := s.timeParts(w.time, status)
		w.parts, w.undated = append(w.parts, dated), append(w.undated, undated...)
	}
	if !f.Since.IsZero() || w.time == "available_at" && !f.DueAfter.IsZero() {
		w.undated = nil
	}
	return w
}

// only returns a condition for each of the statuses on MySQL. After "=", MariaDB may read an index
// from the end, or from the beginning, to the place where a page begins.
func only(statuses ...outbox.Status) []string {
	parts := make([]string, len(statuses))
	for i, status := range statuses {
		parts[i] = fmt.Sprintf("status >= %d AND status <= %d", int(status), int(status))
	}
	return parts
}

// placeOf is the place of a row, or without if the place cannot be read. The place of an undated
// row has no AvailableAt. The place of a row whose times are not exact has no CreatedAt.
func (s *Store) placeOf(w walk, r *found, without outbox.Cursor) outbox.Cursor {
	place := outbox.Cursor{EventID: r.id}
	switch {
	case !s.keyed(&r.row):
		return without
	case w.order == outbox.ByEventID || r.undated:
		return place
	}
	place.AvailableAt = r.at.Time
	if r.at.exact {
		place.CreatedAt = r.createdAt.Time
	}
	return place
}

// walked reads the next n rows behind a place. The rows that the filter chooses have a valid
// lastError.
func (s *Store) walked(ctx context.Context, db outbox.DB, w walk, after outbox.Cursor, n int) ([]found, error) {
	var dated []found
	if w.order == outbox.ByEventID || after.EventID == "" || !after.AvailableAt.IsZero() {
		var err error
		if dated, err = s.walkedParts(ctx, db, w, w.parts, after, n); err != nil || len(dated) == n {
			return dated, err
		}
		after = outbox.Cursor{}
	}
	undated, err := s.walkedParts(ctx, db, w, w.undated, after, n-len(dated))
	return append(dated, undated...), err
}

func (s *Store) walkedParts(ctx context.Context, db outbox.DB, w walk, parts []timePart, after outbox.Cursor, n int) ([]found, error) {
	var all []found
	merge := false
	for _, part := range parts {
		q := s.query(1024)
		q.ordered().add("SELECT ").found().add(", ").listener().add(", ").chosen(w).add(", ").placeColumn(w.time).
			add(" FROM ").table(s).add(" WHERE ", part.where).walk(s, w, part, after).limit(n, "")
		r := found{undated: part.undated}
		before := len(all)
		err := s.rows(ctx, db, "finding events", q, func(rows *sql.Rows) error {
			err := rows.Scan(append(append(r.fields(), r.listener.fields()...), &r.lastError, &r.at)...)
			all = append(all, r)
			return err
		})
		if err != nil {
			return nil, err
		}
		merge = merge || before > 0 && len(all) > before
	}
	if merge { // the rows of one part keep the order of the database
		sortRows(all, w.compare)
	}
	return all[:min(len(all), n)], nil
}

// compare is the order of rows that several statements read.
func (w walk) compare(x, y found) int {
	switch {
	case x.undated && w.order == outbox.ByEndTime:
		return cmp.Compare(y.id, x.id)
	case x.undated:
		return cmp.Compare(x.id, y.id)
	default:
		return cmp.Or(cmp.Compare(x.at.text, y.at.text), byDue(x.row, y.row))
	}
}

// walk writes the condition for the rows behind a place, and their order.
func (q *query) walk(s *Store, w walk, part timePart, after outbox.Cursor) *query {
	if w.inOrder && !part.undated {
		q.between(w)
	}
	switch {
	case part.indexed:
		return q.idBelow(after).add(" ORDER BY status DESC, done_at DESC, event_id DESC LIMIT ")
	case part.undated && w.order == outbox.ByEndTime:
		return q.undatedBehind(s, part, " < ", after.EventID).add(" DESC LIMIT ")
	case part.undated:
		return q.undatedBehind(s, part, " > ", after.EventID).add(" LIMIT ")
	case w.order == outbox.ByDueTime && w.mysql:
		return q.dueBehind(s, after).add(" ORDER BY status, available_at, created_at, event_id LIMIT ")
	case w.order == outbox.ByDueTime:
		return q.dueBehind(s, after).add(dueOrder)
	case w.order == outbox.ByEndTime && w.mysql:
		return q.endedBefore(s, w.time, after).add(" ORDER BY status DESC, done_at DESC, event_id DESC LIMIT ")
	case w.order == outbox.ByEndTime:
		return q.endedBefore(s, w.time, after).add(" ORDER BY ", w.time, " DESC, event_id DESC LIMIT ")
	case w.search:
		// Not "=", after which the rows would also be in the order of the primary key: the
		// planner may then read the table in that order.
		q.add(" AND aggregate_id >= ").arg(w.filter.AggregateID).add(" AND aggregate_id <= ").arg(w.filter.AggregateID)
		return q.idBelow(after).add(" ORDER BY aggregate_id DESC, event_id DESC LIMIT ")
	case w.prefix.isIndexed():
		return q.prefixed(w, after)
	default:
		return q.idBelow(after).add(" ORDER BY event_id DESC LIMIT ")
	}
}

// dueBehind writes the condition for the rows behind a place in the order of their due times.
func (q *query) dueBehind(s *Store, after outbox.Cursor) *query {
	if after.EventID == "" || !after.CreatedAt.IsZero() {
		return q.after(after)
	}
	available := q.exactly(s, "available_at", "available_at", "available_at", after, after.AvailableAt)
	return q.from("available_at", available, after).
		behind(after, available, q.exactly(s, "created_at", "created_at", "available_at", after, after.CreatedAt))
}

// endedBefore writes the condition for the rows behind a place in the order of their ends.
func (q *query) endedBefore(s *Store, ended string, after outbox.Cursor) *query {
	if after.EventID == "" {
		return q
	}
	at := q.ended(s, ended, ended, after)
	if at.left != ended { // an index finds the first of the rows
		q.add(" AND ", ended, " <= ").time(untilOf(after))
	}
	return q.add(" AND (", at.left, " <= ").call(at.value).add(" AND (", at.left, " < ").call(at.value).add(" OR event_id < ").arg(after.EventID).add("))")
}

func (q *query) idBelow(after outbox.Cursor) *query {
	if after.EventID == "" {
		return q
	}
	return q.add(" AND event_id < ").arg(after.EventID)
}

// between writes the condition for the time.
func (q *query) between(w walk) *query {
	if q.span(w.time, w.filter.Since, w.filter.Until); w.time == "available_at" {
		q.dueSpan(w)
	}
	return q
}

// dueSpan writes the condition for the time at which events are due.
func (q *query) dueSpan(w walk) { q.span("available_at", w.filter.DueAfter, w.filter.DueBefore) }

// span writes the condition for a time from since on, and before until.
func (q *query) span(column string, since, until time.Time) {
	if !since.IsZero() {
		q.add(" AND ", column, " >= ").time(since)
	}
	if !until.IsZero() {
		q.add(" AND ", column, " < ").time(until)
	}
}

// chosen writes the last error of a row that the filter chooses, and NULL for others.
func (q *query) chosen(w walk) *query {
	f := w.filter
	q.add("CASE WHEN 1 = 1")
	if len(f.Statuses) > 0 {
		q.add(" AND status IN (")
		for i, status := range f.Statuses {
			if i > 0 {
				q.add(",")
			}
			q.arg(int(status))
		}
		q.add(")")
	}
	q.equal("event_type", string(f.EventType)).equal(aggregateTypeColumn, string(f.AggregateType)).
		equal("aggregate_id", f.AggregateID).equal("tenant_id", f.TenantID)
	if !w.inOrder {
		q.between(w)
	}
	if w.order != outbox.ByDueTime {
		q.dueSpan(w)
	}
	if f.Leased {
		q.add(" AND locked_at IS NOT NULL AND NOT (status = 1 AND locked_by IS NOT NULL AND locked_by LIKE '" + outbox.DeletedBy + "%')")
	}
	if f.DeletionID != "" {
		q.add(" AND status = 1 AND locked_by = ").arg(outbox.DeletedBy + f.DeletionID)
	}
	q.texts(w)
	return q.add(" THEN COALESCE(", shownError, ", ", q.d.emptyText(), ") END")
}

// aggregateTypeColumn is the aggregate type as decoding reads it.
const aggregateTypeColumn = "COALESCE(aggregate_type, '" + string(outbox.Global) + "')"

// equal writes the condition for a text, unless the text is empty.
func (q *query) equal(column, text string) *query {
	if text == "" {
		return q
	}
	return q.add(" AND ", column, " = ").arg(text)
}
