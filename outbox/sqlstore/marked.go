package sqlstore

import (
	"encoding/json"
	"slices"
	"strconv"

	"github.com/outboxkit/outbox-go/outbox"
)

// marked writes the condition for the marked rows: each id with the fence of the mark. All marks have
// the same kind of fence. Fences that differ are written in the form that is fastest on each
// database and finds rows by primary key.
func (q *query) marked(outcome outbox.Outcome, marks []outbox.Mark) *query {
	first, column := &marks[0], "locked_by"
	many := slices.ContainsFunc(marks, func(m outbox.Mark) bool { return m.Lease != first.Lease })
	if fenceOf(first) == fenceDue {
		column = "available_at"
		many = slices.ContainsFunc(marks, func(m outbox.Mark) bool { return !m.DueAt.Equal(first.DueAt) })
	}
	switch {
	case q.d == postgres && (many || hasValues(outcome)):
		q.joined(outcome, marks, many)
	case !many:
		q.add(" WHERE ").ids("event_id", idsOf(marks))
	case q.d.name == "mysql":
		q.pairs(column, marks)
	default:
		q.listed(column, marks)
	}
	switch {
	case !many:
		q.fenced(first)
	case fenceOf(first) == fenceDue:
		q.still("locked_at IS NULL")
	}
	return q
}

func idsOf(marks []outbox.Mark) []string {
	ids := make([]string, len(marks))
	for i := range marks {
		ids[i] = marks[i].EventID
	}
	return ids
}

// listed writes a list of ids, and, for SQLite, a list of ids with a column of their fences. The first
// list finds the rows. The second list is within a CASE, so that SQLite does not find the rows by an
// index of the column.
func (q *query) listed(column string, marks []outbox.Mark) {
	q.add(" WHERE ").ids("event_id", idsOf(marks)).
		add(" AND CASE WHEN (event_id, ", column, ") IN (SELECT key, value FROM json_each(").arg(q.fences(marks)).add(")) THEN TRUE ELSE FALSE END")
}

// fenced writes the condition that rows pass the fence of a mark.
func (q *query) fenced(m *outbox.Mark) *query {
	switch fenceOf(m) {
	case fenceLease:
		q.add(" AND locked_by = ").arg(m.Lease)
	case fenceDue:
		q.add(" AND CASE WHEN available_at = ").time(m.DueAt).add(" AND locked_at IS NULL THEN TRUE ELSE FALSE END")
	case fenceNone:
	}
	return q
}

// still writes a condition that named rows must still meet. Within a CASE no index serves the
// condition, so that the rows are found by primary key: with statistics taken while all rows were
// DONE, an index of the other rows looks empty, and PostgreSQL would read the whole index.
func (q *query) still(condition string) *query {
	if q.d == sqlite { // which looks into the CASE for the condition of a partial index
		condition = "+" + condition
	}
	return q.add(" AND CASE WHEN ", condition, " THEN TRUE ELSE FALSE END")
}

// pairs writes a list of ids with a column of their fences.
func (q *query) pairs(column string, marks []outbox.Mark) {
	q.add(" WHERE (event_id, ", column, ") IN (")
	for i := range marks {
		if i > 0 {
			q.add(",")
		}
		q.add("(").arg(marks[i].EventID).add(",").arg(q.fence(&marks[i])).add(")")
	}
	q.add(")")
}

// fence is the value that the row of a mark must have: the lease, or the time as a parameter.
func (q *query) fence(m *outbox.Mark) any {
	if fenceOf(m) == fenceDue {
		return q.d.timeArg(m.DueAt)
	}
	return m.Lease
}

// fences maps event ids to fences, as JSON.
func (q *query) fences(marks []outbox.Mark) string {
	fences := make(map[string]any, len(marks))
	for i := range marks {
		fences[marks[i].EventID] = q.fence(&marks[i])
	}
	text, _ := json.Marshal(fences) // strings and whole numbers cannot fail
	return string(text)
}

// joined joins the rows with arrays of the marks' values.
func (q *query) joined(outcome outbox.Outcome, marks []outbox.Mark, fences bool) {
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
	due := fenceOf(&marks[0]) == fenceDue
	switch {
	case fences && due:
		column("due", "TIMESTAMPTZ", func(m *outbox.Mark) string { return q.d.timeArg(m.DueAt).(string) })
	case fences:
		column("lease", "TEXT", func(m *outbox.Mark) string { return m.Lease })
	}
	if hasValues(outcome) {
		column("at", "TIMESTAMPTZ", func(m *outbox.Mark) string { return q.d.timeArg(m.AvailableAt).(string) })
		column("err", "TEXT", func(m *outbox.Mark) string { return m.Error })
		column("n", "INT", func(m *outbox.Mark) string { return strconv.Itoa(m.Attempts) })
	}
	q.add(") AS marks (", columns, ") WHERE event_id = marks.id")
	switch {
	case fences && due:
		q.add(" AND available_at = marks.due")
	case fences:
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
