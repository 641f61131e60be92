package sqlstore

import (
	"context"
	"fmt"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// Limits of one INSERT, below every database's limit of parameters (SQLite's
// 32,766 is the smallest) and packet size (MariaDB's 16 MB).
const (
	insertRows  = 500
	insertBytes = 4 << 20
)

// Insert implements [outbox.Store].
func (s *Store) Insert(ctx context.Context, tx outbox.Execer, envs []outbox.Envelope, lease string, due time.Time) error {
	for len(envs) > 0 {
		n, size := 0, 0
		for n < len(envs) && n < insertRows {
			size += envs[n].Payload.Len()
			for key, value := range envs[n].Headers {
				size += len(key) + len(value)
			}
			if n > 0 && size > insertBytes {
				break
			}
			n++
		}
		if err := s.insertChunk(ctx, tx, envs[:n], lease, due); err != nil {
			return err
		}
		envs = envs[n:]
	}
	return nil
}

func (s *Store) insertChunk(ctx context.Context, tx outbox.Execer, envs []outbox.Envelope, lease string, due time.Time) error {
	q := s.query(256 + 80*len(envs))
	q.args = make([]any, 0, 11*len(envs))
	q.add("INSERT INTO ").table(s).add(" (event_id, event_type, aggregate_type, aggregate_id, tenant_id, payload, headers," +
		" status, attempts, available_at, created_at, locked_by, locked_at) VALUES ")
	for i := range envs {
		env := &envs[i]
		headers, err := s.encodeHeaders(env.Headers)
		if err != nil {
			return s.fail(fmt.Sprintf("encoding the headers of event %s", env.EventID), err)
		}
		if i > 0 {
			q.add(", ")
		}
		q.add("(").arg(env.EventID).add(",").arg(string(env.EventType)).add(",").arg(string(env.AggregateType)).add(",").
			arg(nullable(env.AggregateID)).add(",").arg(nullable(env.TenantID)).add(",").
			arg(env.Payload.String()).add(",").arg(headers).add(",0,0,").
			arg(s.d.timeArg(env.AvailableAt)).add(",").arg(s.d.timeArg(env.OccurredAt)).add(",")
		if lease != "" && !env.AvailableAt.After(due) {
			q.arg(lease).add(",").now().add(")")
		} else {
			q.add("NULL,NULL)")
		}
	}
	if s.err != nil {
		return s.err
	}
	if _, err := tx.ExecContext(ctx, q.text(), q.args...); err != nil {
		what := "inserting event " + envs[0].EventID
		if len(envs) > 1 {
			what = fmt.Sprintf("inserting %d events, %s first,", len(envs), envs[0].EventID)
		}
		return s.fail(what, err)
	}
	return nil
}

// nullable is NULL for the empty string.
func nullable(s string) any {
	if s == "" {
		return nil
	}
	return s
}

func (s *Store) encodeHeaders(h map[string]string) (any, error) {
	if len(h) == 0 {
		return nil, nil
	}
	text, err := s.codecOrDefault().Marshal(h)
	if err != nil {
		return nil, err
	}
	return string(text), nil
}

func (s *Store) codecOrDefault() outbox.Codec {
	if s.codec == nil {
		return outbox.DefaultCodec
	}
	return s.codec
}

// Now implements [outbox.Store].
func (s *Store) Now(ctx context.Context, db outbox.DB) (time.Time, error) {
	if s.d.now == "" {
		return time.Now().UTC().Truncate(time.Microsecond), nil
	}
	var now timestamp
	q := s.query(64)
	q.add("SELECT ").add(fmt.Sprintf(s.d.textColumn, s.d.now))
	err := s.rows(ctx, db, "reading the clock", q, scanInto(&now))
	return now.Time, err
}
