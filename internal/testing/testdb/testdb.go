// Package testdb gives each test its own database: a schema on PostgreSQL, a database on MySQL, a
// file for SQLite. A commit on PostgreSQL or SQLite does not wait for the disk: no test of these
// databases kills their server or cuts the power. OUTBOX_TEST_POSTGRES and OUTBOX_TEST_MYSQL name the servers; the defaults are
// the servers on the default local ports. A test whose server is missing is skipped with the
// reason, and fails when CI=true.
package testdb

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// Kind is a kind of database.
type Kind string

// The kinds.
const (
	Postgres Kind = "postgres"
	MySQL    Kind = "mysql"
	SQLite   Kind = "sqlite"
)

// Target is a kind of database with a driver.
type Target struct {
	Name   string
	Kind   Kind
	driver string            // as database/sql knows it
	params map[string]string // of the DSN
	open   func(driver, dsn string) (*sql.DB, error)
}

// Via returns the target with another function to open pools, such as sqltx.Open.
func (target Target) Via(open func(driver, dsn string) (*sql.DB, error)) Target {
	target.open = open
	return target
}

// Via is [Target.Via] for several targets.
func Via(open func(driver, dsn string) (*sql.DB, error), targets []Target) []Target {
	followed := make([]Target, len(targets))
	for i, target := range targets {
		followed[i] = target.Via(open)
	}
	return followed
}

// DB is a pool on a test's own database.
type DB struct {
	*sql.DB
	Kind Kind
	Name string
	DSN  string

	target Target
}

// Option changes how a pool is opened.
type Option struct{ key, value string }

// Param adds a parameter to the DSN.
func Param(key, value string) Option { return Option{key, value} }

// extra are targets of some builds only.
var extra []Target

// Main returns a target for each kind of database.
func Main() []Target {
	return []Target{
		{Name: "postgres/pgx", Kind: Postgres, driver: "pgx"},
		{Name: "mysql", Kind: MySQL, driver: "mysql"},
		{
			Name: "sqlite", Kind: SQLite, driver: "sqlite",
			params: map[string]string{"_pragma": "busy_timeout(30000)&_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)&_pragma=foreign_keys(1)", "_txlock": "immediate"},
		},
	}
}

// Bulk is Main for tests that load many rows. Such tests use SQLite's C library if there is a C
// compiler: the race detector makes the translation of SQLite to Go ten times slower.
func Bulk() []Target {
	targets := Main()
	for _, t := range extra {
		if t.Name == "sqlite/mattn" {
			targets[len(targets)-1] = t
		}
	}
	return targets
}

// Drivers is every target.
func Drivers() []Target {
	return append(append(
		Main(),
		Target{Name: "postgres/pgx-simple", Kind: Postgres, driver: "pgx", params: map[string]string{"default_query_exec_mode": "simple_protocol"}},
		Target{Name: "postgres/pq", Kind: Postgres, driver: "postgres"},
		Target{Name: "postgres/pgdriver", Kind: Postgres, driver: "pg"},
	), extra...)
}

// Each runs fn on a separate database for each target, in parallel.
func Each(t *testing.T, targets []Target, fn func(t *testing.T, db *DB)) {
	t.Helper()
	for _, target := range targets {
		t.Run(target.Name, func(t *testing.T) {
			t.Parallel()
			fn(t, Open(t, target))
		})
	}
}

// maxConns keeps many parallel tests below the servers' limits.
const maxConns = 8

var serial atomic.Int64

// Open creates a database for the test, and drops it when the test ends.
func Open(t testing.TB, target Target, opts ...Option) *DB {
	t.Helper()
	name := fmt.Sprintf("outbox_test_%d_%d_%d", os.Getpid(), time.Now().UnixMilli(), serial.Add(1))
	db := &DB{Kind: target.Kind, Name: target.Name, target: target}
	switch target.Kind {
	case Postgres:
		base := postgresURL(t)
		admin(t, "pgx", base, "CREATE SCHEMA "+name, "DROP SCHEMA "+name+" CASCADE")
		db.DSN = withParams(base, map[string]string{"search_path": name, "synchronous_commit": "off"})
		if target.driver == "pg" { // pgdriver also takes other parameters as settings
			db.DSN = withParams(db.DSN, map[string]string{"timeout": "30s"})
		}
	case MySQL:
		base := mysqlDSN(t)
		admin(t, "mysql", base, "CREATE DATABASE "+name, "DROP DATABASE "+name)
		server, rest, _ := cutLast(base, "/")
		_, query, _ := strings.Cut(rest, "?")
		db.DSN = server + "/" + name
		if query != "" {
			db.DSN += "?" + query
		}
	case SQLite:
		// A subtest's name may contain a #, which would end the path.
		db.DSN = "file:" + strings.NewReplacer("%", "%25", "#", "%23", "?", "%3f").Replace(t.TempDir()) + "/test.db"
	}
	db.DSN = withParams(db.DSN, target.params)
	return db.Reopen(t, opts...)
}

// Target is the target that the database was opened for.
func (db *DB) Target() Target { return db.target }

// IsMariaDB reports whether the server is MariaDB, whose kind is [MySQL].
func (db *DB) IsMariaDB(t testing.TB) bool {
	t.Helper()
	if db.Kind != MySQL {
		return false
	}
	var version string
	if err := db.QueryRowContext(t.Context(), "SELECT version()").Scan(&version); err != nil {
		t.Fatal(err)
	}
	return strings.Contains(version, "MariaDB")
}

// Reopen opens another pool on the same database.
func (db *DB) Reopen(t testing.TB, opts ...Option) *DB {
	t.Helper()
	again := *db
	for _, o := range opts {
		again.DSN = withParams(again.DSN, map[string]string{o.key: o.value})
	}
	open := db.target.open
	if open == nil {
		open = sql.Open
	}
	pool, err := open(db.target.driver, again.DSN)
	if err != nil {
		t.Fatalf("opening %s: %v", db.Name, err)
	}
	pool.SetMaxOpenConns(maxConns)
	pool.SetMaxIdleConns(maxConns)
	t.Cleanup(func() { _ = pool.Close() })
	if db.Kind == SQLite {
		// The first connection switches to WAL, which two connections cannot do at
		// once.
		if err := pool.PingContext(context.Background()); err != nil {
			t.Fatalf("opening %s: %v", db.Name, err)
		}
	}
	again.DB = pool
	return &again
}

// Via opens another pool on the same database with open; nil is [sql.Open].
func (db *DB) Via(t testing.TB, open func(driver, dsn string) (*sql.DB, error)) *DB {
	t.Helper()
	other := *db
	other.target.open = open
	return other.Reopen(t)
}

// admin runs a statement now and another statement when the test has ended.
func admin(t testing.TB, driver, dsn, create, drop string) {
	t.Helper()
	run := func(statement string) error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		db, err := sql.Open(driver, dsn)
		if err != nil {
			return err
		}
		defer func() { _ = db.Close() }()
		_, err = db.ExecContext(ctx, statement)
		return err
	}
	if err := run(create); err != nil {
		t.Fatalf("%s: %v", create, err)
	}
	t.Cleanup(func() {
		if err := run(drop); err != nil {
			t.Logf("%s: %v", drop, err)
		}
	})
}

// withParams sets parameters of an address. Drivers differ in which of two values they take, so a
// parameter gets one value.
func withParams(dsn string, params map[string]string) string {
	for key, value := range params {
		address, query, _ := strings.Cut(dsn, "?")
		kept := slices.DeleteFunc(strings.Split(query, "&"), func(param string) bool { return param == "" || strings.HasPrefix(param, key+"=") })
		dsn = address + "?" + strings.Join(append(kept, key+"="+value), "&")
	}
	return dsn
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}
