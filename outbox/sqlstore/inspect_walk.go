package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// walk is how FindEvents goes through the table: along one index, whatever else the filter
// says. Only what that index has is in its WHERE, so that no statistics make a database
// choose another plan.
type walk struct {
	filter outbox.EventFilter
	order  outbox.EventOrder
	// search: along the index of WithSearchIndex.
	search bool
	// time is the column that Since and Until are about. inOrder: the walk is in its order.
	time    string
	inOrder bool
	// parts are the conditions for the statuses, one for each statement.
	parts []string
	mysql bool
}

func (s *Store) walkOf(f outbox.EventFilter) walk {
	w := walk{filter: f, order: f.Order(), mysql: s.d.name == "mysql"}
	switch w.order {
	case outbox.ByDueTime:
		w.time, w.inOrder, w.parts = "available_at", true, s.pending()
		if w.mysql {
			w.parts = only(f.Statuses...)
		}
	case outbox.ByEndTime:
		w.time, w.inOrder, w.parts = s.died(), true, []string{fmt.Sprint("status = ", int(f.Statuses[0]))}
		if w.mysql {
			w.parts = only(f.Statuses[0])
		}
	default:
		w.time, w.parts = "created_at", []string{"1 = 1"}
	}
	if slices.Contains(s.indexes, "search") && f.AggregateID != "" {
		w.order, w.search, w.inOrder, w.parts = outbox.ByEventID, true, false, []string{"1 = 1"}
	}
	return w
}

// only are the conditions for each of the statuses on MySQL. After "=", MariaDB may read an
// index from its end, or from its beginning, to the place where a page begins.
func only(statuses ...outbox.Status) []string {
	parts := make([]string, len(statuses))
	for i, status := range statuses {
		parts[i] = fmt.Sprintf("status >= %d AND status <= %d", int(status), int(status))
	}
	return parts
}

// placeOf is where a row stands, and without if it cannot be read where. On MySQL, one
// without done_at stands behind all others.
func (s *Store) placeOf(w walk, r *found, without outbox.Cursor) outbox.Cursor {
	place := outbox.Cursor{EventID: r.id}
	switch {
	case !s.keyed(&r.row):
		return without
	case w.order == outbox.ByDueTime:
		return s.cursorOf([]row{r.row}, without)
	case w.order == outbox.ByEventID:
		return place
	}
	if place.AvailableAt = r.doneAt.Time; place.AvailableAt.IsZero() && !w.mysql {
		place.AvailableAt = r.createdAt.Time
	}
	if place.AvailableAt.IsZero() && !w.mysql {
		return without
	}
	return place
}

// walked reads the next n rows behind a place. Those that the filter chooses have a valid
// lastError.
func (s *Store) walked(ctx context.Context, db outbox.DB, w walk, after outbox.Cursor, n int) ([]found, error) {
	var all []found
	for _, part := range w.parts {
		q := s.query(1024)
		q.ordered().add("SELECT ").found().add(", ").listener().add(", ").chosen(w).add(" FROM ").table(s).add(" WHERE ", part).walk(w, after).limit(n, "")
		var r found
		err := s.rows(ctx, db, "finding events", q, func(rows *sql.Rows) error {
			err := rows.Scan(append(append(r.fields(), r.listener.fields()...), &r.lastError)...)
			all = append(all, r)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	if len(w.parts) > 1 {
		slices.SortFunc(all, func(a, b found) int { return byDue(a.row, b.row) })
		all = all[:min(len(all), n)]
	}
	return all, nil
}

// walk writes the condition for the rows behind a place, and their order.
func (q *query) walk(w walk, after outbox.Cursor) *query {
	if w.inOrder {
		q.between(w)
	}
	switch {
	case w.order == outbox.ByDueTime && w.mysql:
		return q.after(after).add(" ORDER BY status, available_at, created_at, event_id LIMIT ")
	case w.order == outbox.ByDueTime:
		return q.after(after).add(dueOrder)
	case w.order == outbox.ByEndTime && w.mysql:
		return q.endedBefore(w, after).add(" ORDER BY status DESC, done_at DESC, event_id DESC LIMIT ")
	case w.order == outbox.ByEndTime:
		return q.endedBefore(w, after).add(" ORDER BY ", w.time, " DESC, event_id DESC LIMIT ")
	case w.search:
		// Not "=", after which the rows would also be in the order of the primary key: the
		// planner may then read the table in that order.
		q.add(" AND aggregate_id >= ").arg(w.filter.AggregateID).add(" AND aggregate_id <= ").arg(w.filter.AggregateID)
		return q.idBelow(after).add(" ORDER BY aggregate_id DESC, event_id DESC LIMIT ")
	default:
		return q.idBelow(after).add(" ORDER BY event_id DESC LIMIT ")
	}
}

func (q *query) idBelow(after outbox.Cursor) *query {
	if after.EventID == "" {
		return q
	}
	return q.add(" AND event_id < ").arg(after.EventID)
}

// endedBefore writes the condition for the rows behind a place in the order of their ends.
// On MySQL, those without done_at are the last ones.
func (q *query) endedBefore(w walk, after outbox.Cursor) *query {
	switch {
	case after.EventID == "":
		return q
	case w.mysql && after.AvailableAt.IsZero():
		return q.add(" AND done_at IS NULL").idBelow(after)
	}
	q.add(" AND (", w.time, " <= ").time(after.AvailableAt).add(" AND (", w.time, " < ").time(after.AvailableAt).
		add(" OR event_id < ").arg(after.EventID).add(")")
	if w.mysql {
		q.add(" OR done_at IS NULL")
	}
	return q.add(")")
}

// between writes the condition for the time.
func (q *query) between(w walk) *query {
	bound := func(at time.Time, operator string) {
		if !at.IsZero() {
			q.add(" AND ", w.time, operator).time(at)
		}
	}
	bound(w.filter.Since, " >= ")
	bound(w.filter.Until, " < ")
	return q
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
	return q.add(" THEN COALESCE(", shownError, ", ", q.d.emptyText(), ") END")
}

// aggregateTypeColumn is the aggregate type as decoding has it.
const aggregateTypeColumn = "COALESCE(aggregate_type, '" + string(outbox.Global) + "')"

// equal writes the condition for a text, unless that is empty.
func (q *query) equal(column, text string) *query {
	if text == "" {
		return q
	}
	return q.add(" AND ", column, " = ").arg(text)
}
