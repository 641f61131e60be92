package sqlstore

import (
	"fmt"
	"math"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// timePart is the rows that a single statement reads of a list in the order of a time.
type timePart struct {
	time, where string
	// undated rows have a time that cannot be read, such as infinity. Such rows are in the order of
	// their ids, because no page can begin behind their time.
	undated bool
	// indexed: the index has the undated rows in the order of their ids.
	indexed bool
}

// timeParts are the rows that a condition chooses: a part with the rows whose time can be
// read, and a part for each way in which a time cannot be read.
func (s *Store) timeParts(column, where string) (dated timePart, undated []timePart) {
	part := func(condition string) timePart {
		return timePart{time: column, where: where + " AND " + fmt.Sprintf(condition, column)}
	}
	for _, condition := range s.d.undated {
		p := part(condition)
		p.undated = true
		undated = append(undated, p)
	}
	return part(s.d.dated), undated
}

// undatedBehind writes the condition for the undated rows behind an id, and their order: byte
// by byte, as Go merges the parts, and not by the primary key, along which the whole table
// would be read.
//
// PostgreSQL has no statistics of an expression that only a partial index has, and may expect many undated
// rows: then PostgreSQL would read and sort all dead rows. The subquery asks the index whether there is an
// undated row at all.
func (q *query) undatedBehind(s *Store, part timePart, operator, id string) *query {
	key := "COALESCE(event_id, '')"
	if q.d == postgres {
		key += ` COLLATE "C"`
		q.add(" AND (SELECT TRUE FROM ").table(s).add(" WHERE ", part.where, " ORDER BY ", part.time, " LIMIT 1)")
	}
	if id != "" {
		q.add(" AND ", key, operator).arg(id)
	}
	return q.add(" ORDER BY ", key)
}

// placeTime reads the time of a row's place in a list. Values that are no time may lie among
// the times: a fraction of a microsecond in SQLite, 2024-00-00 in MySQL. Such a value
// gets the last microsecond before it, and is not exact.
type placeTime struct {
	time.Time
	exact bool
	text  string // as MySQL writes and orders it
}

// Scan takes the values that [timestamp] takes, and values that are no time.
func (p *placeTime) Scan(src any) error {
	*p = placeTime{}
	var t timestamp
	switch v := src.(type) {
	case float64:
		err := t.Scan(int64(math.Floor(v)))
		p.Time = t.Time
		return err
	case []byte:
		p.text = string(v)
	case string:
		p.text = v
	}
	err := t.Scan(src)
	if p.Time, p.exact = t.Time, !t.IsZero(); p.exact {
		return err
	}
	var year, month, day int
	if n, _ := fmt.Sscanf(p.text, "%d-%d-%d", &year, &month, &day); n == 3 && year > 0 {
		next := time.Date(year, time.Month(max(month, 1)), 1, 0, 0, 0, 0, time.UTC)
		if month > 0 && day > 0 { // such as February 31
			next = next.AddDate(0, 1, 0)
		}
		p.Time = next.Add(-time.Microsecond)
	}
	return err
}

// placeColumn writes a time column so that placeTime can read it.
func (q *query) placeColumn(column string) *query {
	if q.d == sqlite {
		return q.add("CASE WHEN typeof(", column, ") IN ('integer', 'real') THEN ", column, " END")
	}
	return q.timeColumn(column)
}

// compared is how a time finds the rows behind a place: the statement compares left, of each row,
// with the text that value writes.
type compared struct {
	left  string
	value func()
}

// ended compares a column with the end of the row at which a page ended. The place has this end
// exactly if it has a CreatedAt, and on PostgreSQL, where each end that can be read is exact.
func (q *query) ended(s *Store, column, end string, place outbox.Cursor) compared {
	if s.d == postgres || !place.CreatedAt.IsZero() {
		return compared{column, func() { q.time(place.AvailableAt) }}
	}
	return q.exactly(s, column, end, end, place, place.AvailableAt)
}

// exactly compares a column with a value of the row at which a page ended: a value that is no time
// cannot be a parameter. If the row is gone, or has another time than the place, the value is at.
// MySQL compares texts, because 2024-00-00 from a subquery, or from COALESCE, is NULL.
func (q *query) exactly(s *Store, column, of, timeOf string, place outbox.Cursor, at time.Time) compared {
	write := func(t time.Time) { q.time(t) }
	if s.d.name == "mysql" {
		column, of, timeOf = "CAST("+column+" AS CHAR)", "CAST("+of+" AS CHAR)", "CAST("+timeOf+" AS CHAR)"
		write = func(t time.Time) { q.add("CAST(CAST(").time(t).add(" AS DATETIME(6)) AS CHAR)") }
	}
	return compared{column, func() {
		q.add("COALESCE((SELECT ", of, " FROM ").table(s).add(" WHERE event_id = ").arg(place.EventID).add(" AND ", timeOf, " >= ")
		write(place.AvailableAt)
		q.add(" AND ", timeOf, " < ")
		write(untilOf(place))
		q.add("), ")
		write(at)
		q.add(")")
	}}
}

// untilOf is later than all values that have the time of a place.
func untilOf(place outbox.Cursor) time.Time {
	until := place.AvailableAt.Add(time.Microsecond)
	if until.Year() > 9999 {
		return place.AvailableAt
	}
	return until
}

// from writes a bound by which an index finds the first rows behind a place, if left is not a
// column.
func (q *query) from(column string, c compared, place outbox.Cursor) *query {
	if c.left == column {
		return q
	}
	return q.add(" AND ", column, " >= ").time(place.AvailableAt)
}
