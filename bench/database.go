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

	"github.com/outboxkit/outbox-go/internal/testdb"
)

// database is the database of one sample: a schema on PostgreSQL, a database on
// MySQL or MariaDB, a file for SQLite.
type database struct {
	kind testdb.Kind
	name string
	file string // of SQLite
	// statements counts what is sent to PostgreSQL once counting is set.
	counting   atomic.Bool
	statements atomic.Int64
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

// exec runs a statement inside the database, on a connection of its own.
func (db *database) exec(ctx context.Context, statement string) error {
	pool, err := db.open()
	if err != nil {
		return err
	}
	defer func() { _ = pool.Close() }()
	_, err = pool.ExecContext(ctx, statement)
	return err
}

// open opens a pool.
func (db *database) open() (*sql.DB, error) { return db.openVia(sql.OpenDB) }

// openVia opens a pool by [sql.OpenDB] or what stands in for it.
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
		config.Tracer = &counter{db}
		return stdlib.GetConnector(*config), nil
	case testdb.MySQL:
		config, err := mysql.ParseDSN(testdb.MySQLDSN())
		if err != nil {
			return nil, err
		}
		config.DBName = db.name
		config.InterpolateParams = true // no extra round trip to prepare each statement
		return mysql.NewConnector(config)
	default:
		pool, err := sql.Open("sqlite", "")
		if err != nil {
			return nil, err
		}
		defer func() { _ = pool.Close() }()
		dsn := "file:" + db.file + "?_pragma=busy_timeout(30000)&_pragma=journal_mode(WAL)&_txlock=immediate"
		return fileConnector{pool.Driver(), dsn}, nil
	}
}

// pgxPool opens a pool without database/sql, on PostgreSQL, with changes to its
// configuration.
func (db *database) pgxPool(ctx context.Context, with ...func(*pgx.ConnConfig)) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(testdb.PostgresDSN())
	if err != nil {
		return nil, err
	}
	config.MaxConns = maxConns
	config.ConnConfig.RuntimeParams["search_path"] = db.name
	config.ConnConfig.Tracer = &counter{db}
	for _, change := range with {
		change(config.ConnConfig)
	}
	return pgxpool.NewWithConfig(ctx, config)
}

// analyze refreshes the planner's statistics, as the server does by itself within
// a minute.
func (db *database) analyze(ctx context.Context, table string) error {
	statement := "ANALYZE " + table
	if db.kind == testdb.MySQL {
		statement = "ANALYZE TABLE " + table
	}
	return db.exec(ctx, statement)
}

// fileConnector is the connector of SQLite's driver.
type fileConnector struct {
	driver driver.Driver
	dsn    string
}

func (c fileConnector) Connect(context.Context) (driver.Conn, error) { return c.driver.Open(c.dsn) }
func (c fileConnector) Driver() driver.Driver                        { return c.driver }

// counter counts the statements that pgx sends.
type counter struct{ db *database }

func (c *counter) count() {
	if c.db.counting.Load() {
		c.db.statements.Add(1)
	}
}

func (c *counter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.count()
	return ctx
}
func (c *counter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (c *counter) TraceCopyFromStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceCopyFromStartData) context.Context {
	c.count()
	return ctx
}
func (c *counter) TraceCopyFromEnd(context.Context, *pgx.Conn, pgx.TraceCopyFromEndData) {}

func (c *counter) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}
func (c *counter) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) { c.count() }
func (c *counter) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

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
