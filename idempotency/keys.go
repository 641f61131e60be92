package idempotency

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/outboxkit/outbox-go/internal/nilness"
	"github.com/outboxkit/outbox-go/internal/sqlname"
	"github.com/outboxkit/outbox-go/internal/sqltable"
	"github.com/outboxkit/outbox-go/outbox"
)

const (
	// DefaultTable is the table's name unless [Config] has another name.
	DefaultTable = "idempotency_key"
	// DefaultWait is the default of [Config].Wait.
	DefaultWait = 5 * time.Second
)

// Config makes [Keys].
type Config struct {
	// DB is the pool on which the requests' transactions begin, as the adapter got the pool. Required.
	DB outbox.DB
	// Dialect is [Postgres], [MySQL] (MariaDB too) or [SQLite]. Required.
	Dialect Dialect
	// Table is letters, digits and underscores, optionally with a schema before it.
	// Defaults to [DefaultTable].
	Table string
	// Wait is how long a request waits at most for another request with the same key that is still
	// running: in this process, and then for another process. Defaults to [DefaultWait].
	Wait time.Duration
}

// Keys are the keys of requests, in a table. Keys are safe for concurrent use.
type Keys struct {
	db                   outbox.DB
	source               any
	wait                 time.Duration
	table                *sqltable.Table
	reserve, store, find string
	turns                *turns
}

// New makes keys, and reports all invalid fields together, each as an [outbox.FieldError]. New does not
// touch the database; see [Keys.CreateSchema].
func New(cfg Config) (*Keys, error) {
	if cfg.Table == "" {
		cfg.Table = DefaultTable
	}
	if cfg.Wait == 0 {
		cfg.Wait = DefaultWait
	}
	var errs []error
	add := func(field, problem string) {
		errs = append(errs, &outbox.FieldError{Field: "idempotency.Config." + field, Problem: problem})
	}
	if nilness.IsNil(cfg.DB) {
		add("DB", "is required; give the pool that the adapter has")
	}
	d, known := dialects[cfg.Dialect]
	if !known {
		add("Dialect", fmt.Sprintf("is %.40q; use idempotency.Postgres, idempotency.MySQL (MariaDB too) or idempotency.SQLite", cfg.Dialect))
	}
	name, err := sqlname.Parse(cfg.Table)
	if err != nil {
		add("Table", err.Error())
	}
	if cfg.Wait < 0 {
		add("Wait", fmt.Sprintf("is %s; it must be positive, or zero for %s", cfg.Wait, DefaultWait))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	table := sqltable.New(sqltable.Config{
		Package: "idempotency", Dialect: d.Dialect, Name: name, Schema: d.schema, Key: "key_hash", At: "created_at",
	})
	seconds := strconv.FormatFloat(max(cfg.Wait.Seconds(), 1), 'f', 0, 64)
	return &Keys{
		db: cfg.DB, source: outbox.PoolOf(cfg.DB), wait: cfg.Wait, table: table,
		reserve: strings.ReplaceAll(table.SQL(d.reserve), "{seconds}", seconds), store: table.SQL(d.store), find: table.SQL(d.find),
		turns: &turns{open: map[[32]byte]*turn{}},
	}, nil
}

// Schema is the DDL of the table and the index, for your migrations. The DDL does not change an
// existing table or index.
func (k *Keys) Schema() string { return k.table.Schema }

// CreateSchema creates the table and the index if they are missing. Several processes may call
// CreateSchema at once.
func (k *Keys) CreateSchema(ctx context.Context) error { return k.table.Create(ctx, k.db) }

// Purge forgets the keys that are older than age, by the database's clock, in batches of 1,000, each in
// a separate transaction. Purge returns how many keys it deleted, also with an error. A request that
// comes again after its key was purged takes effect again: choose an age far above the longest time
// after which a client sends a request once more, such as 24 hours. The age must be positive.
func (k *Keys) Purge(ctx context.Context, age time.Duration) (deleted int64, err error) {
	return k.table.Purge(ctx, k.db, age)
}

// Answer is the answer of a request. Package idempotency does not look into the answer.
type Answer struct {
	// Status is the status of the response, as of HTTP.
	Status int
	// Headers are the headers to send again. A value that is not UTF-8 is not kept.
	Headers map[string][]string
	// Body is the body. Nil: the body was not kept.
	Body []byte
}

// record records a key in a transaction; false when the table has the key.
func (k *Keys) record(ctx context.Context, tx outbox.Execer, hash, fingerprint []byte) (first bool, err error) {
	const what = "recording a key"
	res, err := tx.ExecContext(ctx, k.reserve, hash, fingerprint)
	if err != nil {
		return false, k.table.Fail(what, err)
	}
	n, err := res.RowsAffected()
	if err != nil {
		return false, k.table.Fail(what, err)
	}
	return n == 1, nil
}

// put stores the answer of a reserved key.
func (k *Keys) put(ctx context.Context, tx outbox.Execer, hash []byte, answer *Answer) error {
	const what = "storing an answer"
	headers, err := json.Marshal(answer.Headers)
	if err != nil {
		return k.table.Fail(what, err)
	}
	var body any
	if answer.Body != nil {
		body = answer.Body
	}
	res, err := tx.ExecContext(ctx, k.store, answer.Status, string(headers), body, hash)
	if err != nil {
		return k.table.Fail(what, err)
	}
	n, err := res.RowsAffected()
	if err == nil && n != 1 {
		err = fmt.Errorf("the statement changed %d rows: the key was deleted, or a trigger, a rule or a policy skips the update", n)
	}
	if err != nil {
		return k.table.Fail(what, err)
	}
	return nil
}

// row is a row of the table. answer is nil if the request's transaction was committed without an
// answer.
type row struct {
	fingerprint []byte
	answer      *Answer
}

// get reads the row of a key; nil: no such row.
func (k *Keys) get(ctx context.Context, hash []byte) (*row, error) {
	const what = "reading an answer"
	rows, err := k.db.QueryContext(ctx, k.find, hash)
	if err != nil {
		return nil, k.table.Fail(what, err)
	}
	defer func() { _ = rows.Close() }()
	if !rows.Next() {
		if err := rows.Err(); err != nil {
			return nil, k.table.Fail(what, err)
		}
		return nil, nil
	}
	var r row
	var status sql.NullInt64
	var headers sql.NullString
	var body []byte
	var noBody bool
	if err := rows.Scan(&r.fingerprint, &status, &headers, &body, &noBody); err != nil {
		return nil, k.table.Fail(what, err)
	}
	if err := rows.Close(); err != nil {
		return nil, k.table.Fail(what, err)
	}
	if status.Valid {
		r.answer = &Answer{Status: int(status.Int64), Body: body}
		if body == nil && !noBody { // as drivers of SQLite return an empty body
			r.answer.Body = []byte{}
		}
		if err := json.Unmarshal([]byte(headers.String), &r.answer.Headers); err != nil {
			return nil, k.table.Fail(what, fmt.Errorf("the column headers (%d bytes): %w", len(headers.String), err))
		}
	}
	return &r, nil
}
