package sqlstore

import (
	"encoding/json"
	"slices"
	"strconv"

	"github.com/outboxkit/outbox-go/outbox"
)

// marked writes the condition for the marked rows: each id with the lease that the mark names.
// Either all marks name a lease, or no mark does. Many leases are written in the form that is
// fastest on each database and finds rows by primary key.
func (q *query) marked(outcome outbox.Outcome, marks []outbox.Mark) *query {
	lease := marks[0].Lease
	many := slices.ContainsFunc(marks, func(m outbox.Mark) bool { return m.Lease != lease })
	switch {
	case q.d == postgres && (many || hasValues(outcome)):
		q.joined(outcome, marks, many)
	case !many:
		ids := make([]string, len(marks))
		for i := range marks {
			ids[i] = marks[i].EventID
		}
		q.add(" WHERE ").ids("event_id", ids)
	case q.d == sqlite && outcome == outbox.OutcomeDelete:
		q.add(" WHERE (event_id, locked_by) IN (SELECT key, value FROM json_each(").arg(leaseObject(marks)).add("))")
	case q.d == sqlite:
		q.add(" FROM json_each(").arg(leaseObject(marks)).add(") AS marks WHERE event_id = marks.key AND locked_by = marks.value")
	default:
		q.pairs(marks)
	}
	if !many && lease != "" {
		q.add(" AND locked_by = ").arg(lease)
	}
	return q
}

// still writes a condition that named rows must still meet. Within a CASE no index serves the
// condition, so that the rows are found by primary key: with statistics taken while all rows were
// DONE, an index of the other rows looks empty, and PostgreSQL would read the whole index.
func (q *query) still(condition string) *query {
	return q.add(" AND CASE WHEN ", condition, " THEN TRUE ELSE FALSE END")
}

// pairs writes a list of ids with their leases.
func (q *query) pairs(marks []outbox.Mark) {
	q.add(" WHERE (event_id, locked_by) IN (")
	for i := range marks {
		if i > 0 {
			q.add(",")
		}
		q.add("(").arg(marks[i].EventID).add(",").arg(marks[i].Lease).add(")")
	}
	q.add(")")
}

// leaseObject maps event ids to leases, as JSON.
func leaseObject(marks []outbox.Mark) string {
	leases := make(map[string]string, len(marks))
	for i := range marks {
		leases[marks[i].EventID] = marks[i].Lease
	}
	text, _ := json.Marshal(leases) // strings cannot fail
	return string(text)
}

// joined joins the rows with arrays of the marks' values.
func (q *query) joined(outcome outbox.Outcome, marks []outbox.Mark, leases bool) {
	columns := "id"
	column := func(name, kind string, value func(m *outbox.Mark) string) {
		if name != "id" {
			q.add(", ")
			columns += ", " + name
		}
		values := make([]string, len(marks))
		for i := range marks {
			values[i] = value(&marks[i])
		}
		q.add("CAST(").arg(textArray(values)).add(" AS ", kind, "[])")
	}
	if outcome == outbox.OutcomeDelete {
		q.add(" USING unnest(")
	} else {
		q.add(" FROM unnest(")
	}
	column("id", "TEXT", func(m *outbox.Mark) string { return m.EventID })
	if leases {
		column("lease", "TEXT", func(m *outbox.Mark) string { return m.Lease })
	}
	if hasValues(outcome) {
		column("at", "TIMESTAMPTZ", func(m *outbox.Mark) string { return q.d.timeArg(m.AvailableAt).(string) })
		column("err", "TEXT", func(m *outbox.Mark) string { return m.Error })
		column("n", "INT", func(m *outbox.Mark) string { return strconv.Itoa(m.Attempts) })
	}
	q.add(") AS marks (", columns, ") WHERE event_id = marks.id")
	if leases {
		q.add(" AND locked_by = marks.lease")
	}
}

// attempts writes the attempts that the rows get: the attempts of the marks, but never fewer than a
// row has. Where values per row need a CASE, a batch with equal values, the usual case, needs only
// a single argument.
func (q *query) attempts(marks []outbox.Mark) *query {
	n := marks[0].Attempts
	same := !slices.ContainsFunc(marks, func(m outbox.Mark) bool { return m.Attempts != n })
	greatest := ", attempts = GREATEST(attempts, "
	if q.d == sqlite {
		greatest = ", attempts = MAX(attempts, "
	}
	switch {
	case q.d == postgres || !same:
		return q.add(greatest).perRow("n", marks).add(")")
	case n == 0:
		return q
	default:
		return q.add(greatest).arg(n).add(")")
	}
}

// perRow writes a value that differs per row: a column of the joined arrays on
// PostgreSQL, a CASE elsewhere.
func (q *query) perRow(column string, marks []outbox.Mark) *query {
	if q.d == postgres && column == "err" {
		return q.add("NULLIF(marks.err, '')")
	}
	if q.d == postgres {
		return q.add("marks.", column)
	}
	q.add("CASE event_id")
	for i := range marks {
		m := &marks[i]
		q.add(" WHEN ").arg(m.EventID).add(" THEN ")
		switch column {
		case "at":
			q.time(m.AvailableAt)
		case "err":
			q.arg(nullable(m.Error))
		default:
			q.arg(m.Attempts)
		}
	}
	return q.add(" END")
}
