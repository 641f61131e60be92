package sqlstore

import (
	"cmp"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/outboxkit/outbox-go/outbox"
)

// columns writes the columns of an envelope, in the order of row.
func (q *query) columns(prefix string) *query {
	for _, c := range []string{"event_id", "event_type", "aggregate_type", "aggregate_id", "tenant_id", "payload", "headers", "attempts"} {
		q.add(prefix, c, ", ")
	}
	return q.timeColumn(prefix + "created_at").add(", ").timeColumn(prefix + "available_at")
}

// timeColumn writes a time column so that [timestamp] can read it.
func (q *query) timeColumn(column string) *query {
	return q.add(fmt.Sprintf(q.d.textColumn, column))
}

// row is one row of the table as read.
type row struct {
	id, eventType                  string
	aggregateType, aggregateID     sql.NullString
	tenantID, headers              sql.NullString
	payload                        sql.NullString
	attempts                       int
	createdAt, availableAt, diedAt timestamp
	lastError                      sql.NullString
	attempt                        int  // MySQL: the attempts that the claim adds
	leased                         bool // a polled row whose lease expired
}

// fields are the destinations of columns.
func (r *row) fields() []any {
	return []any{&r.id, &r.eventType, &r.aggregateType, &r.aggregateID, &r.tenantID, &r.payload, &r.headers, &r.attempts, &r.createdAt, &r.availableAt}
}

// envelope makes an envelope of the row.
func (s *Store) envelope(r *row) (outbox.Envelope, error) {
	headers, err := s.decodeHeaders(r.headers.String)
	if err != nil {
		return outbox.Envelope{}, err
	}
	aggregate := outbox.Global
	if r.aggregateType.Valid {
		aggregate = outbox.AggregateType(r.aggregateType.String)
	}
	return outbox.Envelope{
		EventID: r.id, EventType: outbox.EventType(r.eventType), AggregateType: aggregate,
		AggregateID: r.aggregateID.String, TenantID: r.tenantID.String, Headers: headers,
		Payload:    outbox.RawJSONWith(s.codec, r.payload.String),
		OccurredAt: r.createdAt.Time, AvailableAt: r.availableAt.Time, Attempts: r.attempts,
	}, nil
}

var errHeaders = errors.New("headers are not a flat object of strings")

// decodeHeaders reads a flat object of strings; NULL, "" and null mean no headers.
// Its errors do not quote the headers, because errors go to logs and into the
// table.
func (s *Store) decodeHeaders(text string) (map[string]string, error) {
	if text == "" || text == "null" || text == "{}" {
		return nil, nil
	}
	var headers map[string]string
	object := outbox.RawJSONWith(s.codec, text)
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

// batch makes a batch of rows in the order of their due times.
func (s *Store) batch(rows []row) outbox.Batch {
	b := outbox.Batch{Envelopes: make([]outbox.Envelope, 0, len(rows))}
	for i := range rows {
		if rows[i].leased {
			b.Expired = append(b.Expired, rows[i].id)
			continue
		}
		env, err := s.envelope(&rows[i])
		if err != nil {
			b.Undecodable = append(b.Undecodable, outbox.Undecodable{EventID: rows[i].id, Err: err})
			continue
		}
		b.Envelopes = append(b.Envelopes, env)
	}
	b.Next = cursorOf(rows, outbox.Cursor{})
	slices.SortFunc(b.Envelopes, func(x, y outbox.Envelope) int {
		if c := x.OccurredAt.Compare(y.OccurredAt); c != 0 {
			return c
		}
		return strings.Compare(x.EventID, y.EventID)
	})
	return b
}

// cursorOf is the place of the last row; without one it is the given place.
func cursorOf(rows []row, without outbox.Cursor) outbox.Cursor {
	if len(rows) == 0 {
		return without
	}
	return rows[len(rows)-1].cursor()
}

func (r *row) cursor() outbox.Cursor {
	return outbox.Cursor{AvailableAt: r.availableAt.Time, CreatedAt: r.createdAt.Time, EventID: r.id}
}

// byDue is the order in which due rows are selected.
func byDue(x, y row) int { return byPlace(x.cursor(), y.cursor()) }

func byPlace(x, y outbox.Cursor) int {
	return cmp.Or(x.AvailableAt.Compare(y.AvailableAt), x.CreatedAt.Compare(y.CreatedAt), strings.Compare(x.EventID, y.EventID))
}

// scanInto returns a scan function for the given destinations.
func scanInto(dest ...any) func(*sql.Rows) error {
	return func(rows *sql.Rows) error { return rows.Scan(dest...) }
}
