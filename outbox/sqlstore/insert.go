package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// Limits of one INSERT, below every database's limit of parameters (SQLite's
// 32,766 is the smallest) and packet size (MariaDB's 16 MB). PostgreSQL takes
// lists: there only the bytes are limited.
const (
	insertRows  = 100
	insertBytes = 4 << 20
)

// insertTexts holds the texts of INSERT ... VALUES by the number of rows, each built
// once.
type insertTexts [insertRows + 1]struct{ plain, leased atomic.Pointer[string] }

// chunk is the rows of an INSERT.
type chunk struct {
	envs   []outbox.Envelope
	lease  string // empty: no lease
	absent bool   // leave existing rows with these ids as they are
	key    bool   // the envelope has a unique key, and is alone
}

// Insert implements [outbox.Store].
func (s *Store) Insert(ctx context.Context, tx outbox.Execer, envs []outbox.Envelope, lease string, due time.Time) error {
	if err := s.findOnce(ctx); err != nil {
		return err
	}
	chunks := s.chunks(envs, lease, due)
	if len(chunks) > 1 && s.d != postgres { // on MySQL and SQLite a failed statement does not end the transaction
		return s.together(ctx, tx, func() error { return s.insertChunks(ctx, tx, chunks) })
	}
	return s.insertChunks(ctx, tx, chunks)
}

// chunks divides envelopes into statements: those that are due first, which get the lease.
func (s *Store) chunks(envs []outbox.Envelope, lease string, due time.Time) []chunk {
	leased, rest := envs, []outbox.Envelope(nil)
	delayed := func(env outbox.Envelope) bool { return env.AvailableAt.After(due) }
	if lease != "" && slices.ContainsFunc(envs, delayed) {
		leased = slices.DeleteFunc(slices.Clone(envs), delayed)
		rest = slices.DeleteFunc(slices.Clone(envs), func(env outbox.Envelope) bool { return !delayed(env) })
	}
	return s.chunked(s.chunked(nil, leased, lease), rest, "")
}

// together undoes all statements of fn if fn fails, also in a transaction that goes on after the error.
func (s *Store) together(ctx context.Context, tx outbox.Execer, fn func() error) error {
	const what, savepoint = "inserting in several statements", " outbox_insert"
	if _, err := tx.ExecContext(ctx, "SAVEPOINT"+savepoint); err != nil {
		return s.fail(what, err)
	}
	if err := fn(); err != nil {
		_, undone := tx.ExecContext(context.WithoutCancel(ctx), "ROLLBACK TO SAVEPOINT"+savepoint)
		return errors.Join(err, undone)
	}
	if _, err := tx.ExecContext(ctx, "RELEASE SAVEPOINT"+savepoint); err != nil {
		return s.fail(what, err)
	}
	return nil
}

func (s *Store) insertChunks(ctx context.Context, tx outbox.Execer, chunks []chunk) error {
	for _, c := range chunks {
		if _, err := s.insertChunk(ctx, tx, c); err != nil {
			return err
		}
	}
	return nil
}

// chunked appends the envelopes in chunks.
func (s *Store) chunked(chunks []chunk, envs []outbox.Envelope, lease string) []chunk {
	for len(envs) > 0 {
		n, size := 0, 0
		for n < len(envs) && (n < insertRows || s.d == postgres) {
			size += envs[n].Payload.Len()
			for key, value := range envs[n].Headers {
				size += len(key) + len(value)
			}
			if n > 0 && size > insertBytes {
				break
			}
			n++
		}
		chunks = append(chunks, chunk{envs: envs[:n], lease: lease})
		envs = envs[n:]
	}
	return chunks
}

// insertChunk inserts rows with one statement, and returns the number of the rows if some may be left
// out.
func (s *Store) insertChunk(ctx context.Context, tx outbox.Execer, c chunk) (rows int, err error) {
	text, args, err := s.insertStatement(c)
	if errors.Is(err, errSeparator) {
		return s.insertEach(ctx, tx, c)
	}
	var result sql.Result
	if err == nil {
		if c.absent {
			text += s.d.unlessThere
		}
		result, err = tx.ExecContext(ctx, text, args...)
	}
	if err == nil && c.absent {
		var n int64
		n, err = result.RowsAffected()
		rows = int(n)
	}
	if err == nil {
		return rows, nil
	}
	what := "inserting event " + c.envs[0].EventID
	if len(c.envs) > 1 {
		what = fmt.Sprintf("inserting %d events, %s first,", len(c.envs), c.envs[0].EventID)
	}
	return 0, s.fail(what, err)
}

func (s *Store) insertStatement(c chunk) (text string, args []any, err error) {
	if len(c.envs) > 1 && s.d == postgres {
		return s.insertLists(c.envs, c.lease)
	}
	args, err = s.rowArgs(c.envs, c.lease)
	if c.key {
		return s.keyedText(c.lease != ""), append(args, c.envs[0].UniqueKey), err
	}
	return s.insertText(len(c.envs), c.lease != ""), args, err
}

func (s *Store) insertEach(ctx context.Context, tx outbox.Execer, c chunk) (rows int, err error) {
	for one := range slices.Chunk(c.envs, 1) {
		n, err := s.insertChunk(ctx, tx, chunk{envs: one, lease: c.lease, absent: c.absent})
		if err != nil {
			return 0, err
		}
		rows += n
	}
	return rows, nil
}

// insertText is the text of an INSERT of that many rows.
func (s *Store) insertText(rows int, leased bool) string {
	inserts := &s.texts().inserts
	cached := &inserts[rows].plain
	if leased {
		cached = &inserts[rows].leased
	}
	if text := cached.Load(); text != nil {
		return *text
	}
	q := s.query(400+40*rows).insertInto(s, leased).add(") VALUES (").row(leased)
	for range rows - 1 {
		q.add("), (").row(leased)
	}
	q.add(")")
	text := q.text()
	cached.Store(&text)
	return text
}

// insertInto writes the beginning of an INSERT, as far as the last column.
func (q *query) insertInto(s *Store, leased bool) *query {
	q.add("INSERT INTO ").table(s).add(" (event_id, event_type, aggregate_type, aggregate_id, tenant_id, payload, headers," +
		" available_at, created_at, status, attempts")
	if leased {
		q.add(", locked_by, locked_at")
	}
	return q
}

// keyedText is the text of an INSERT of a row with a unique key, which is the last parameter.
func (s *Store) keyedText(leased bool) string {
	return s.query(450).insertInto(s, leased).add(", unique_key) VALUES (").row(leased).add(",").arg(nil).add(")").text()
}

// row writes the values of a row with the parameters of [Store.rowArgs].
func (q *query) row(leased bool) *query {
	for range 9 {
		q.arg(nil).add(",")
	}
	q.add("0,0")
	if leased {
		q.add(",").arg(nil).add(",").now()
	}
	return q
}

// rowArgs are the parameters of rows, one row after the other.
func (s *Store) rowArgs(envs []outbox.Envelope, lease string) ([]any, error) {
	args := make([]any, 0, 11*len(envs))
	for i := range envs {
		env := &envs[i]
		headers, err := s.encodeHeaders(env)
		if err != nil {
			return nil, err
		}
		created := s.d.timeArg(env.OccurredAt)
		available := created
		if !env.AvailableAt.Equal(env.OccurredAt) {
			available = s.d.timeArg(env.AvailableAt)
		}
		args = append(args, env.EventID, string(env.EventType), string(env.AggregateType), nullable(env.AggregateID),
			nullable(env.TenantID), env.Payload.String(), nullable(headers), available, created)
		if lease != "" {
			args = append(args, lease)
			if s.d.now == "" {
				args = append(args, s.d.timeArg(time.Now()))
			}
		}
	}
	return args, nil
}

// nullable is NULL for the empty string.
func nullable(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// encodeHeaders is the JSON text of the row's headers; empty when the row has no headers.
func (s *Store) encodeHeaders(env *outbox.Envelope) (string, error) {
	headers := outbox.StoredHeaders(env)
	if len(headers) == 0 {
		return "", nil
	}
	text, err := s.codecOrDefault().Marshal(headers)
	if err != nil {
		return "", fmt.Errorf("encoding the headers of event %s: %w", env.EventID, err)
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
