// Pages measures the pages of the dashboard and the endpoints of httptx.Admin on a table of ten million
// rows:
//
//	go run -C proof ./tools/pages -db postgres all
//
// The steps of "all" are also actions: fill makes the table in a schema of its own, measure asks for each
// page, load asks for pages from many clients at once beside a service that writes and delivers events, and
// drop drops the schema. The table of measure has the time, the bytes and the allocations of each page.
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// options are the flags.
type options struct {
	db, dsn, cli string
	rows, tries  int
	clients      int
	conns        int
	time         time.Duration
	only         string
	readers      int
}

func main() {
	var o options
	flag.StringVar(&o.db, "db", "postgres", "postgres or mysql (MariaDB too)")
	flag.StringVar(&o.dsn, "dsn", "", "the `address` of the server; empty: the server of the tests")
	flag.StringVar(&o.cli, "cli", "", "the `program` outbox, to measure its commands too")
	flag.IntVar(&o.rows, "rows", 10_000_000, "rows of the table")
	flag.IntVar(&o.tries, "tries", 20, "how often each page is asked for")
	flag.IntVar(&o.clients, "clients", 50, "clients of load")
	flag.IntVar(&o.conns, "conns", 10, "connections of the pool")
	flag.DurationVar(&o.time, "time", time.Minute, "how long load lasts")
	flag.IntVar(&o.readers, "readers", 0, "MaxReaders of the dashboard; 0 is the default")
	flag.StringVar(&o.only, "only", "", "measure pages whose address contains this text")
	flag.Parse()
	if err := run(context.Background(), o, flag.Arg(0)); err != nil {
		fmt.Fprintln(os.Stderr, "pages:", err)
		os.Exit(1)
	}
}

// schema is the schema, or the database, that the table is in.
const schema = "outbox_pages"

func run(ctx context.Context, o options, action string) (err error) {
	if action == "all" {
		if err := run(ctx, o, "fill"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, run(ctx, o, "drop")) }()
		return errors.Join(run(ctx, o, "measure"), run(ctx, o, "load"))
	}
	switch {
	case o.dsn != "":
	case o.db == "mysql":
		o.dsn = testdb.MySQLDSN()
	default:
		o.dsn = testdb.PostgresDSN()
	}
	db, err := open(o, action == "fill" || action == "drop")
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	store := sqlstore.Postgres()
	if o.db == "mysql" {
		store = sqlstore.MySQL()
	}
	switch action {
	case "fill":
		if _, err := db.ExecContext(ctx, "CREATE SCHEMA "+schema); err != nil {
			return err
		}
		inside, err := open(o, false)
		if err != nil {
			return err
		}
		defer func() { _ = inside.Close() }()
		return fill(ctx, inside, dialects[o.db], store, o.rows)
	case "measure":
		return measure(ctx, o, db, store)
	case "load":
		return load(ctx, o, db, store)
	case "drop":
		_, err := db.ExecContext(ctx, "DROP SCHEMA "+schema+map[bool]string{true: " CASCADE"}[o.db == "postgres"])
		return err
	}
	return fmt.Errorf("say all, fill, measure, load or drop, not %q", action)
}

// open opens a pool, in the schema or outside.
func open(o options, outside bool) (*sql.DB, error) {
	var db *sql.DB
	if o.db == "mysql" {
		config, err := mysql.ParseDSN(o.dsn)
		if err != nil {
			return nil, err
		}
		if config.InterpolateParams = true; !outside {
			config.DBName = schema
		}
		connector, err := mysql.NewConnector(config)
		if err != nil {
			return nil, err
		}
		db = sqltx.OpenDB(connector)
	} else {
		config, err := pgx.ParseConfig(o.dsn)
		if err != nil {
			return nil, err
		}
		if !outside {
			config.RuntimeParams["search_path"] = schema
		}
		db = sqltx.OpenDB(stdlib.GetConnector(*config))
	}
	db.SetMaxOpenConns(o.conns)
	db.SetMaxIdleConns(o.conns)
	return db, nil
}
