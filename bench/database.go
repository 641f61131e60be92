package main

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
)

// database is the database of a sample: a schema on PostgreSQL, a database on MySQL or MariaDB, a
// file for SQLite.
type database struct {
	kind testdb.Kind
	name string
	file string // of SQLite
	// prepares: MySQL's driver prepares each statement that has arguments.
	prepares bool
	// statements counts the statements that are sent once counting is set.
	counting   atomic.Bool
	statements atomic.Int64
	committed  atomic.Int64 // when the last COMMIT was answered, in nanoseconds after start
}

var serial atomic.Int64

// createDatabase makes a database with the table orders.
func createDatabase(ctx context.Context, kind testdb.Kind) (*database, error) {
	db := &database{kind: kind, name: fmt.Sprintf("outbox_bench_%d_%d_%d", os.Getpid(), time.Now().UnixMilli(), serial.Add(1))}
	switch kind {
	case testdb.Postgres:
		if err := db.admin(ctx, "CREATE SCHEMA "+db.name); err != nil {
			return nil, err
		}
	case testdb.MySQL:
		if err := db.admin(ctx, "CREATE DATABASE "+db.name); err != nil {
			return nil, err
		}
	case testdb.SQLite:
		dir, err := os.MkdirTemp("", "outbox-bench")
		if err != nil {
			return nil, err
		}
		db.file = filepath.Join(dir, "bench.db")
	}
	err := db.exec(ctx, "CREATE TABLE orders (id VARCHAR(64) PRIMARY KEY, item VARCHAR(64))")
	if err != nil {
		_ = db.drop(ctx)
	}
	return db, err
}

// describeDatabase is the version of a kind of database, and the settings that decide when a commit
// is durable.
func describeDatabase(ctx context.Context, kind testdb.Kind) (text string, err error) {
	db, err := createDatabase(ctx, kind)
	if err != nil {
		return "", err
	}
	defer func() { err = firstError(err, db.drop(context.WithoutCancel(ctx))) }()
	err = db.read(ctx, map[testdb.Kind]string{
		testdb.Postgres: "SELECT concat('version ', current_setting('server_version'), ', fsync ', current_setting('fsync')," +
			" ', synchronous_commit ', current_setting('synchronous_commit'))",
		testdb.MySQL: "SELECT concat('version ', version(), ', innodb_flush_log_at_trx_commit ', @@innodb_flush_log_at_trx_commit, ', sync_binlog ', @@sync_binlog)",
		testdb.SQLite: "SELECT concat('version ', sqlite_version(), ', journal_mode ', journal_mode, ', synchronous ', synchronous)" +
			" FROM pragma_journal_mode, pragma_synchronous",
	}[kind], &text)
	return text, err
}

func (db *database) drop(ctx context.Context) error {
	switch db.kind {
	case testdb.Postgres:
		return db.admin(ctx, "DROP SCHEMA "+db.name+" CASCADE")
	case testdb.MySQL:
		return db.admin(ctx, "DROP DATABASE "+db.name)
	default:
		return os.RemoveAll(filepath.Dir(db.file))
	}
}

// admin runs a statement outside the database.
func (db *database) admin(ctx context.Context, statement string) error {
	name, dsn := "pgx", testdb.PostgresDSN()
	if db.kind == testdb.MySQL {
		name, dsn = "mysql", testdb.MySQLDSN()
	}
	pool, err := sql.Open(name, dsn)
	if err != nil {
		return err
	}
	defer func() { _ = pool.Close() }()
	_, err = pool.ExecContext(ctx, statement)
	return err
}

// exec runs a statement inside the database, on a separate connection.
func (db *database) exec(ctx context.Context, statement string) error {
	pool, err := db.open()
	if err != nil {
		return err
	}
	defer func() { _ = pool.Close() }()
	_, err = pool.ExecContext(ctx, statement)
	return err
}

// read reads a row inside the database, on a separate connection.
func (db *database) read(ctx context.Context, query string, into ...any) error {
	pool, err := db.open()
	if err != nil {
		return err
	}
	defer func() { _ = pool.Close() }()
	return pool.QueryRowContext(ctx, query).Scan(into...)
}

// open opens a pool.
func (db *database) open() (*sql.DB, error) { return db.openVia(sql.OpenDB) }

// openVia opens a pool by [sql.OpenDB] or by a function that takes the place of [sql.OpenDB].
func (db *database) openVia(open func(driver.Connector) *sql.DB) (*sql.DB, error) {
	connector, err := db.connector()
	if err != nil {
		return nil, err
	}
	pool := open(connector)
	pool.SetMaxOpenConns(maxConns)
	pool.SetMaxIdleConns(maxConns)
	return pool, nil
}

func (db *database) connector() (driver.Connector, error) {
	switch db.kind {
	case testdb.Postgres:
		config, err := pgx.ParseConfig(testdb.PostgresDSN())
		if err != nil {
			return nil, err
		}
		config.RuntimeParams["search_path"] = db.name
		config.Tracer = tracer{db}
		return stdlib.GetConnector(*config), nil
	case testdb.MySQL:
		config, err := mysql.ParseDSN(testdb.MySQLDSN())
		if err != nil {
			return nil, err
		}
		config.DBName = db.name
		config.InterpolateParams = !db.prepares // no extra round trip to prepare each statement
		connector, err := mysql.NewConnector(config)
		return countingConnector{connector, db}, err
	default:
		pool, err := sql.Open("sqlite", "")
		if err != nil {
			return nil, err
		}
		defer func() { _ = pool.Close() }()
		dsn := "file:" + db.file + "?_pragma=busy_timeout(30000)&_pragma=journal_mode(WAL)&_txlock=immediate"
		return countingConnector{fileConnector{pool.Driver(), dsn}, db}, nil
	}
}

// pgxPool opens a pool without database/sql, on PostgreSQL, with changes to the configuration.
func (db *database) pgxPool(ctx context.Context, with ...func(*pgx.ConnConfig)) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(testdb.PostgresDSN())
	if err != nil {
		return nil, err
	}
	config.MaxConns = maxConns
	config.ConnConfig.RuntimeParams["search_path"] = db.name
	config.ConnConfig.Tracer = tracer{db}
	for _, change := range with {
		change(config.ConnConfig)
	}
	return pgxpool.NewWithConfig(ctx, config)
}

// analyze refreshes the planner's statistics of a table.
func (db *database) analyze(ctx context.Context, table string) error {
	statement := "ANALYZE " + table
	if db.kind == testdb.MySQL {
		statement = "ANALYZE TABLE " + table
	}
	return db.exec(ctx, statement)
}

// analyzeAll refreshes the planner's statistics, as the server does by itself
// within a minute.
func (db *database) analyzeAll(ctx context.Context) error {
	query := map[testdb.Kind]string{
		testdb.Postgres: "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()",
		testdb.MySQL:    "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()",
		testdb.SQLite:   "SELECT name FROM sqlite_master WHERE type = 'table'",
	}[db.kind]
	pool, err := db.open()
	if err != nil {
		return err
	}
	defer func() { _ = pool.Close() }()
	var tables []string
	rows, err := pool.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var table string
		if err := rows.Scan(&table); err != nil {
			return err
		}
		tables = append(tables, table)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	for _, table := range tables {
		if err := db.analyze(ctx, table); err != nil {
			return err
		}
	}
	return nil
}

// fileConnector is the connector of SQLite's driver.
type fileConnector struct {
	driver driver.Driver
	dsn    string
}

func (c fileConnector) Connect(context.Context) (driver.Conn, error) { return c.driver.Open(c.dsn) }
func (c fileConnector) Driver() driver.Driver                        { return c.driver }

// pools are closed together.
type pools []*sql.DB

func (p pools) close() error {
	var first error
	for _, pool := range p {
		if err := pool.Close(); err != nil && first == nil {
			first = err
		}
	}
	return first
}
