// Package sqltable creates and purges a table that a package keeps in the user's database, beside the
// user's own tables.
package sqltable

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/outboxkit/outbox-go/internal/sqlname"
)

// Dialect is the SQL that a database speaks.
type Dialect struct {
	quote string
	// lock serializes the creation of the schema; empty: not needed.
	lock string
	// purge deletes a batch of rows that are older than a number of microseconds.
	purge string
}

// batch is the most rows that a statement of Purge deletes.
const batch = 1000

// The dialects. MySQL is also the dialect of MariaDB.
var (
	Postgres = &Dialect{
		quote: `"`,
		// IF NOT EXISTS does not protect against a concurrent CREATE.
		lock: "SELECT pg_advisory_xact_lock(hashtext('outbox-go schema of {package}'))",
		purge: "DELETE FROM {table} WHERE ({key}) IN (SELECT {key} FROM {table} " +
			"WHERE {at} < now() - CAST($1 AS BIGINT) * INTERVAL '1 microsecond' ORDER BY {at} LIMIT {batch})",
	}
	MySQL = &Dialect{
		quote: "`",
		// A DELETE of a range locks the gaps between its rows, and waits for a row of a transaction that runs:
		// inserts of other keys would wait for that transaction. This locks the rows that are deleted alone.
		purge: "DELETE old FROM (SELECT {key} FROM {table} WHERE {at} < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND " +
			"ORDER BY {at} LIMIT {batch}) AS chosen STRAIGHT_JOIN {table} AS old FORCE INDEX (PRIMARY) USING ({key}) " +
			"WHERE old.{at} < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND",
	}
	SQLite = &Dialect{
		quote: `"`,
		purge: "DELETE FROM {table} WHERE ({key}) IN (SELECT {key} FROM {table} " +
			"WHERE {at} < CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER) - ? ORDER BY {at} LIMIT {batch})",
	}
)

// Execer runs a statement.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// DB is a connection pool.
type DB interface {
	Execer
	BeginTx(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error)
}

// Config makes a [Table].
type Config struct {
	Package string // begins the errors
	Dialect *Dialect
	Name    sqlname.Name
	Schema  string // the DDL, with {table}, {unqualified}, {index} and {qualified_index}
	Key     string // the columns of the primary key
	At      string // the column with the time of a row, which has the index
}

// Table is a table with an index on the time of a row. It is safe for concurrent use.
type Table struct {
	Config
	purge string
	fill  *strings.Replacer
}

// New makes a table, without touching the database.
func New(c Config) *Table {
	quote := c.Dialect.quote
	index := quote + c.Name.Index(strings.TrimSuffix(c.At, "_at")) + quote
	qualified := index
	if c.Name.Schema != "" { // in SQLite the schema precedes the index name
		qualified = quote + c.Name.Schema + quote + "." + index
	}
	t := &Table{Config: c, fill: strings.NewReplacer(
		"{table}", c.Name.Quoted(quote), "{unqualified}", quote+c.Name.Name+quote, "{index}", index, "{qualified_index}", qualified,
		"{package}", c.Package, "{key}", c.Key, "{at}", c.At, "{batch}", strconv.Itoa(batch),
	)}
	t.Schema, t.purge = t.SQL(c.Schema), t.SQL(c.Dialect.purge)
	return t
}

// SQL is a statement with the table's name in place of {table}.
func (t *Table) SQL(statement string) string { return t.fill.Replace(statement) }

// Create creates the table and the index if they are missing. Several processes may call Create at
// once.
func (t *Table) Create(ctx context.Context, db DB) (err error) {
	const what = "creating the schema"
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return t.Fail(what, err)
	}
	defer func() { _ = tx.Rollback() }()
	statements := strings.Split(strings.TrimSpace(t.Schema), ";\n")
	if t.Dialect.lock != "" {
		statements = append([]string{t.SQL(t.Dialect.lock)}, statements...)
	}
	for _, statement := range statements {
		if _, err := tx.ExecContext(ctx, strings.TrimSuffix(statement, ";")); err != nil {
			return t.Fail(what, err)
		}
	}
	if err := tx.Commit(); err != nil {
		return t.Fail(what, err)
	}
	return nil
}

// Purge deletes the rows that are older than age, by the database's clock, in batches of 1,000, each in
// a separate transaction. Purge returns how many rows it deleted, also with an error. The age must be
// positive.
func (t *Table) Purge(ctx context.Context, db Execer, age time.Duration) (deleted int64, err error) {
	if age <= 0 {
		return 0, fmt.Errorf("%s: Purge age is %s; it must be positive", t.Package, age)
	}
	what := fmt.Sprintf("purging records older than %s", age)
	args := make([]any, max(1, strings.Count(t.purge, "?")))
	for i := range args {
		args[i] = age.Microseconds()
	}
	for {
		res, err := db.ExecContext(ctx, t.purge, args...)
		if err != nil {
			return deleted, t.Fail(what, err)
		}
		n, err := res.RowsAffected()
		if err != nil {
			return deleted, t.Fail(what, err)
		}
		if deleted += n; n < batch {
			return deleted, nil
		}
	}
}

// Fail is an error of a statement.
func (t *Table) Fail(what string, err error) error {
	return fmt.Errorf("%s: %s in table %s: %w", t.Package, what, t.Name, err)
}
