package sqlstore

import (
	"cmp"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/outboxkit/outbox-go/outbox"
)

// columns writes the columns of an envelope, in the order of row.
func (q *query) columns(prefix string) *query {
	for _, c := range []string{"event_id", "event_type", "aggregate_type", "aggregate_id", "tenant_id"} {
		q.add(prefix, c, ", ")
	}
	q.payload(prefix).add(", ", prefix, "headers, ", prefix, "attempts, ")
	return q.timeColumn(prefix + "created_at").add(", ").timeColumn(prefix + "available_at")
}

// payload writes the column as a text. PostgreSQL refuses a prepared statement when the type
// of a column in the result has changed, and a migration changes the type of payload.
func (q *query) payload(prefix string) *query {
	if q.d == postgres {
		return q.add("CAST(", prefix, "payload AS TEXT)")
	}
	return q.add(prefix, "payload")
}

// timeColumn writes a time column so that [timestamp] can read it.
func (q *query) timeColumn(column string) *query {
	return q.add(fmt.Sprintf(q.d.textColumn, column))
}

// row is a row of the table as read.
type row struct {
	id                         string
	bytesID                    bool // the driver gave bytes
	eventType                  sql.NullString
	aggregateType, aggregateID sql.NullString
	tenantID, headers          sql.NullString
	payload                    sql.NullString
	attempts                   count
	createdAt, availableAt     timestamp
	lastError                  sql.NullString
	attempt                    count          // MySQL: the attempts that the claim adds
	lease                      sql.NullString // the name, of a poll; not valid: the row has no lease
}

// fields are the destinations of columns.
func (r *row) fields() []any {
	return []any{(*rowID)(r), &r.eventType, &r.aggregateType, &r.aggregateID, &r.tenantID, &r.payload, &r.headers, &r.attempts, &r.createdAt, &r.availableAt}
}

// aFewRows is the number of rows to which a list grows before it gets room for the limit: a read of
// a backlog is full, most other reads are nearly empty.
const aFewRows = 16

// appendTo returns a scan function that reads columns into the given fields of r, and appends a copy
// of r to a list of at most limit rows. The same r serves all rows of a query.
func (r *row) appendTo(all *[]row, limit int, fields ...any) func(*sql.Rows) error {
	return func(rows *sql.Rows) error {
		err := rows.Scan(fields...)
		if n := len(*all); n == aFewRows {
			*all = withRoom(*all, min(limit-n, mostRoom))
		}
		*all = append(*all, *r)
		return err
	}
}

// readLists has long lists of rows that were read and became batches. In a drain each batch needs such
// a list, and a row takes as much memory as its texts: with a new list for each batch the collector
// would run a fourth more often.
var readLists sync.Pool // of *[]row, with no rows

// mostRoom is how many rows a list gets room for before they are read. A longer list grows while it is
// read: a count has a limit of 100,000 rows, of which a table mostly has few.
const mostRoom = 2_000

// withRoom returns the list with room for n more rows.
func withRoom(rows []row, n int) []row {
	if list, ok := readLists.Get().(*[]row); ok && cap(*list)-len(rows) >= n {
		return append(*list, rows...)
	}
	return slices.Grow(rows, max(n, 0))
}

// handBack gives a list to a later read. Until then the list must not keep the texts of its rows in
// memory.
func handBack(rows []row) {
	if cap(rows) > aFewRows {
		clear(rows[:cap(rows)])
		rows = rows[:0]
		readLists.Put(&rows)
	}
}

// envelope makes an envelope of the row. With an error, the envelope lacks the values that cannot
// be read.
func (s *Store) envelope(r *row) (outbox.Envelope, error) {
	headers, err := s.decodeHeaders(r.headers.String)
	aggregate := outbox.Global
	if r.aggregateType.Valid {
		aggregate = outbox.AggregateType(r.aggregateType.String)
	}
	env := outbox.Envelope{
		EventID: s.idOf(r), EventType: outbox.EventType(r.eventType.String), AggregateType: aggregate,
		AggregateID: r.aggregateID.String, TenantID: r.tenantID.String,
		OccurredAt: r.createdAt.Time, AvailableAt: r.availableAt.Time, Attempts: max(int(r.attempts), 0),
	}
	err = cmp.Or(err, outbox.ReadStored(&env, headers, r.payload.String))
	env.Payload = env.Payload.WithCodec(s.codec)
	return env, err
}

// problem returns why the row cannot be delivered, its headers apart.
func (s *Store) problem(r *row) error {
	switch {
	case !s.keyed(r):
		return errors.New("event_id is no text")
	case !r.eventType.Valid:
		return errors.New("event_type is NULL")
	case !r.payload.Valid:
		return errors.New("payload is NULL")
	case r.attempts < 0 || r.attempts >= math.MaxInt32:
		return errors.New("attempts is no number of attempts")
	case r.createdAt.IsZero():
		return errors.New("created_at is no time between the years 1 and 9999")
	case r.availableAt.IsZero():
		return errors.New("available_at is no time between the years 1 and 9999")
	default:
		return nil
	}
}

// keyed reports whether the row's id is a text, by which statements find the row.
func (s *Store) keyed(r *row) bool { return s.d != sqlite || r.id != "" && !r.bytesID }

// idOf is the event id. Bytes that another program wrote on SQLite become hexadecimal digits, which
// the row gets as its id when it becomes DEAD; see [Store.rekey].
func (s *Store) idOf(r *row) string {
	if s.d == sqlite && r.bytesID {
		return hex.EncodeToString([]byte(r.id))
	}
	return r.id
}

var errHeaders = errors.New("headers are not a flat object of strings")

// decodeHeaders reads a flat object of strings; NULL, "" and null mean no headers. The errors do
// not quote the headers, because errors go to logs and into the table.
func (s *Store) decodeHeaders(text string) (map[string]string, error) {
	if text == "" || text == "null" || text == "{}" {
		return nil, nil
	}
	if s.codec == nil {
		if headers, ok := plainHeaders(text); ok {
			return headers, nil
		}
	}
	var headers map[string]string
	object := outbox.RawJSON(text).WithCodec(s.codec)
	if err := object.Decode(&headers); err != nil {
		return nil, fmt.Errorf("%w: %w", errHeaders, err)
	}
	if strings.Contains(text, "null") { // a codec decodes a null value as ""
		var strict map[string]*string
		if err := object.Decode(&strict); err != nil {
			return nil, fmt.Errorf("%w: %w", errHeaders, err)
		}
		for _, value := range strict {
			if value == nil {
				return nil, fmt.Errorf("%w: a value is null", errHeaders)
			}
		}
	}
	if len(headers) == 0 {
		return nil, nil
	}
	return headers, nil
}

// plainHeaders reads the usual headers, strings without escapes, faster than a codec does. ok is
// false for any other text, which may be valid all the same.
func plainHeaders(text string) (headers map[string]string, ok bool) {
	for i := range len(text) {
		if c := text[i]; c == '\\' || c < ' ' || c >= utf8.RuneSelf {
			return nil, false
		}
	}
	headers = make(map[string]string, strings.Count(text, `":`))
	text, ok = strings.CutPrefix(text, "{")
	for ok {
		var key, value string
		if key, text, ok = plainString(text, ':'); !ok {
			break
		}
		if value, text, ok = plainString(text, ','); ok {
			headers[key] = value
			continue
		}
		value, text, ok = plainString(text, '}')
		headers[key] = value
		return headers, ok && text == ""
	}
	return nil, false
}

// plainString cuts a string and the character that ends it off the text. The string
// has no escapes.
func plainString(text string, end byte) (s, rest string, ok bool) {
	s, rest, ok = strings.Cut(strings.TrimLeft(text, " "), `"`)
	if !ok || s != "" {
		return "", text, false
	}
	s, rest, ok = strings.Cut(rest, `"`)
	if rest = strings.TrimLeft(rest, " "); !ok || rest == "" || rest[0] != end {
		return "", text, false
	}
	return s, rest[1:], true
}

// batch makes a batch of rows that were read behind a place, in the order of their due times. The list
// of rows is empty afterwards, and belongs to a later read.
func (s *Store) batch(rows []row, after outbox.Cursor) outbox.Batch {
	b := outbox.Batch{Envelopes: make([]outbox.Envelope, 0, len(rows))}
	for i := range rows {
		if rows[i].lease.Valid {
			b.Expired = append(b.Expired, outbox.Lease{EventID: s.idOf(&rows[i]), Name: rows[i].lease.String})
			continue
		}
		env, err := s.envelope(&rows[i])
		if err = cmp.Or(s.problem(&rows[i]), err); err != nil {
			b.Undecodable = append(b.Undecodable, outbox.Undecodable{EventID: env.EventID, Err: err})
			continue
		}
		b.Envelopes = append(b.Envelopes, env)
	}
	if len(rows) > 0 {
		b.Next = s.cursorOf(rows, after)
	}
	handBack(rows)
	sortRows(b.Envelopes, func(x, y outbox.Envelope) int {
		if c := x.OccurredAt.Compare(y.OccurredAt); c != 0 {
			return c
		}
		return strings.Compare(x.EventID, y.EventID)
	})
	return b
}

// cursorOf is the place of the last row that has a place; without such a row it is the given place.
func (s *Store) cursorOf(rows []row, without outbox.Cursor) outbox.Cursor {
	for i := range slices.Backward(rows) {
		if r := &rows[i]; s.keyed(r) && !r.availableAt.IsZero() && !r.createdAt.IsZero() {
			return r.cursor()
		}
	}
	return without
}

func (r *row) cursor() outbox.Cursor {
	return outbox.Cursor{AvailableAt: r.availableAt.Time, CreatedAt: r.createdAt.Time, EventID: r.id}
}

// byDue is the order in which due rows are selected.
func byDue(x, y row) int { return byPlace(x.cursor(), y.cursor()) }

func byPlace(x, y outbox.Cursor) int {
	return cmp.Or(x.AvailableAt.Compare(y.AvailableAt), x.CreatedAt.Compare(y.CreatedAt), strings.Compare(x.EventID, y.EventID))
}

// sortRows sorts as [slices.SortFunc] does. A program has the code of SortFunc once for each type of
// rows, 20 KB each.
func sortRows[T any](rows []T, compare func(x, y T) int) {
	sort.Slice(rows, func(i, j int) bool { return compare(rows[i], rows[j]) < 0 })
}

// scanInto returns a scan function for the given destinations.
func scanInto(dest ...any) func(*sql.Rows) error {
	return func(rows *sql.Rows) error { return rows.Scan(dest...) }
}
