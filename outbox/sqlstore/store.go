// Package sqlstore keeps the outbox table in PostgreSQL, MySQL or MariaDB (TiDB
// speaks the same dialect), and SQLite, through database/sql and any driver.
//
//	store := sqlstore.Postgres()                  // or MySQL(), SQLite()
//	store, err := sqlstore.Detect(ctx, db)        // asks the server what it is
//	err = store.CreateSchema(ctx, db)             // or ship store.Migrations()
//
// Statement texts never contain values. Writing, polling, storing outcomes, purging and listing
// dead letters read about as many rows as they return or change, whatever the table holds. Four
// operations read more: a claim reads past the due rows that are leased; a filter by event or
// aggregate type reads all dead letters of its time range; counting dead letters reads each dead
// letter; and Stats counts up to [outbox.StatsLimit] rows of each kind.
package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/outboxkit/outbox-go/internal/sqlerr"
	"github.com/outboxkit/outbox-go/internal/sqlname"
	"github.com/outboxkit/outbox-go/outbox"
)

// DefaultTable is the table's name when no other is given.
const DefaultTable = "outbox_event"

// Store is the table in a database. A Store implements [outbox.Store], and [outbox.Notifier] for
// databases without notifications, and is safe for concurrent use.
type Store struct {
	d     *dialect
	table sqlname.Name // as given
	codec outbox.Codec
	err   error // the problems of the options

	turn    chan struct{} // holds a token while a statement is under way; see changed
	indexes []string      // the suffixes of the indexes that options add to the schema

	asGiven  texts
	pool     atomic.Pointer[outbox.DB] // of the outbox to which the store is bound; nil: none, or several
	several  atomic.Bool               // the store is embedded in a store that several pools share
	unclear  atomic.Bool               // the pools find the table in different schemas
	strict   atomic.Bool               // the pool's sessions are stricter than the store's statements need; see checkSession
	locksNow atomic.Bool               // the server is known to be MySQL; see lockNow
	// claimsWait: the server has no SKIP LOCKED, so claims wait for each other, and for any other
	// transaction that locks a row of the claim.
	claimsWait atomic.Bool
	found      atomic.Pointer[texts] // with the schema in which the pool finds the table; nil: not known
}

var (
	_ outbox.Store        = (*Store)(nil)
	_ outbox.RunReader    = (*Store)(nil)
	_ outbox.TenantReader = (*Store)(nil)
	_ outbox.Notifier     = (*Store)(nil)
	_ outbox.PoolBinder   = (*Store)(nil)
)

// Option changes a store.
type Option func(*Store)

// WithTable names the table: letters, digits and underscores, optionally with a
// schema before it, as in "app.outbox_event". The name is used unchanged,
// including its case. Defaults to outbox_event.
func WithTable(name string) Option {
	return func(s *Store) {
		t, err := sqlname.Parse(name)
		if err != nil {
			s.err = errors.Join(s.err, &outbox.FieldError{Field: "sqlstore.WithTable", Problem: err.Error()})
			return
		}
		s.table = t
	}
}

// WithAgeIndex adds to the schema an index that purging by age needs, as [outbox.WriterOnly]
// purges. Every write pays for the index. Without the index each batch of such a purge reads the
// table.
func WithAgeIndex() Option { return withIndex("age") }

// WithKeyIndex adds to the schema the index that [outbox.OrderedByKey] reads. Every write and every
// outcome pays for the index. The mode does not start without the index.
func WithKeyIndex() Option { return withIndex("key") }

// WithTenantIndex adds to the schema the index that [outbox.ClaimOptions].TenantsInTurn reads.
// Every write and every outcome pays for the index. The mode does not start without the index.
func WithTenantIndex() Option { return withIndex("tenant") }

// WithSearchIndex adds to the schema an index of aggregate ids, which [outbox.Outbox.FindEvents]
// then reads when the filter has an aggregate id. Every write pays for the index. Give the option
// only when the table has the index: without the index each page reads the table.
func WithSearchIndex() Option { return withIndex("search") }

// WithUniqueIndex lets the store write events with an [outbox.Envelope].UniqueKey, and adds to the
// schema the column and the unique index for the key. An event without a key pays for the index only
// on MySQL and MariaDB. Give the option only when the table has both, or CreateSchema adds them: Start
// fails without the index. A partitioned table of PostgreSQL cannot have the index.
func WithUniqueIndex() Option { return withIndex(uniqueIndex) }

func withIndex(suffix string) Option {
	return func(s *Store) {
		if !slices.Contains(s.indexes, suffix) {
			s.indexes = append(s.indexes, suffix)
		}
	}
}

func (s *Store) hasOption(index string) bool { return slices.Contains(s.indexes, index) }

// WithCodec sets the codec for headers, and for decoding payloads that are read. The codec must
// write JSON. Defaults to [outbox.DefaultCodec].
func WithCodec(codec outbox.Codec) Option {
	return func(s *Store) {
		if problem := codecProblem(codec); problem != "" {
			s.err = errors.Join(s.err, &outbox.FieldError{Field: "sqlstore.WithCodec", Problem: problem})
			return
		}
		s.codec = codec
	}
}

func codecProblem(codec outbox.Codec) string {
	switch binary, ok := codec.(outbox.BinaryCodec); {
	case codec == nil:
		return "is given no codec; leave it out for encoding/json"
	case ok:
		return fmt.Sprintf("is given a codec of %.64q; headers are JSON. Give the codec to the topics, with WithCodec", binary.ContentType())
	default:
		return ""
	}
}

// Postgres is a store for PostgreSQL 13 or newer. Validate and every method report a bad option.
func Postgres(opts ...Option) *Store { return newStore(postgres, opts) }

// MySQL is a store for MySQL 8 and MariaDB 10.6 or newer. TiDB speaks the same dialect, but without
// SKIP LOCKED: there, nodes that claim the same rows wait for each other. Validate and every method
// report a bad option.
func MySQL(opts ...Option) *Store { return newStore(mysql, opts) }

// SQLite is a store for SQLite 3.49 or newer. Validate and every method report a bad option.
func SQLite(opts ...Option) *Store { return newStore(sqlite, opts) }

func newStore(d *dialect, opts []Option) *Store {
	s := &Store{d: d, table: sqlname.Name{Name: DefaultTable}, turn: make(chan struct{}, 1)}
	for _, opt := range opts {
		opt(s)
	}
	s.asGiven.table = s.table
	return s
}

// Validate reports the problems of the options.
func (s *Store) Validate() error { return s.err }

// Dialect is "postgres", "mysql" or "sqlite".
func (s *Store) Dialect() string { return s.d.name }

// Table is the table's name as given. If the store is bound to a pool and has found the table, the
// name has the schema.
func (s *Store) Table() string { return s.name().String() }

// fail adds the operation to a database error, and the fix if a table or a column is missing.
func (s *Store) fail(what string, err error) error {
	return fmt.Errorf("outbox: %s on table %s: %w%s", what, s.name(), sqlerr.WithoutAddress(err, ""), s.wayOut(err))
}

// exec runs a statement and returns how many rows it changed. Where the sessions of the pool are
// stricter, the statement runs in a transaction that is read committed; see checkSession.
func (s *Store) exec(ctx context.Context, db outbox.Execer, what string, q *query) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	if pool, ok := db.(outbox.DB); ok && s.strict.Load() {
		n := 0
		err := s.inTx(ctx, pool, what, readCommitted, func(tx *sql.Tx) (err error) {
			n, err = s.exec(ctx, tx, what, q)
			return err
		})
		return n, err
	}
	res, err := db.ExecContext(ctx, q.text(), q.args...)
	if err != nil {
		return 0, s.fail(what, err)
	}
	n, err := res.RowsAffected()
	if err != nil {
		return 0, s.fail(what, err)
	}
	return int(n), nil
}

// queryer is a pool or a transaction.
type queryer interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// rows runs a query and passes each row to scan.
func (s *Store) rows(ctx context.Context, db queryer, what string, q *query, scan func(*sql.Rows) error) error {
	if s.err != nil {
		return s.err
	}
	if pool, ok := db.(outbox.DB); ok && s.strict.Load() {
		return s.inTx(ctx, pool, what, readCommitted, func(tx *sql.Tx) error { return s.rows(ctx, tx, what, q, scan) })
	}
	rows, err := db.QueryContext(ctx, q.text(), q.args...)
	if err != nil {
		return s.fail(what, err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return s.fail(what, err)
		}
	}
	if err := rows.Err(); err != nil {
		return s.fail(what, err)
	}
	return nil
}

// inTx runs fn in its own transaction.
func (s *Store) inTx(ctx context.Context, db outbox.DB, what string, opts *sql.TxOptions, fn func(tx *sql.Tx) error) error {
	if s.err != nil {
		return s.err
	}
	if opts == nil && s.strict.Load() {
		opts = readCommitted
	}
	tx, err := db.BeginTx(ctx, opts)
	if err != nil {
		return s.fail(what, err)
	}
	if err := fn(tx); err != nil {
		_ = tx.Rollback()
		return err
	}
	if err := tx.Commit(); err != nil {
		return s.fail(what, err)
	}
	return nil
}
