package sqltx_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"

	"modernc.org/sqlite"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

const dsn = "file:/open?vfs=memdb&_pragma=busy_timeout(5000)&_txlock=immediate"

// Open takes the place of sql.Open.
func ExampleOpen() {
	db, err := sqltx.Open("sqlite", dsn)
	check(err)
	defer db.Close()
	fmt.Println(db.PingContext(context.Background()))
	// Output:
	// <nil>
}

// connector stands for one of a driver, such as pgx's stdlib.GetConnector.
type connector struct{}

func (connector) Connect(context.Context) (driver.Conn, error) { return new(sqlite.Driver).Open(dsn) }
func (connector) Driver() driver.Driver                        { return new(sqlite.Driver) }

// OpenDB takes the place of sql.OpenDB.
func ExampleOpenDB() {
	db := sqltx.OpenDB(connector{})
	defer db.Close()
	fmt.Println(db.PingContext(context.Background()))
	// Output:
	// <nil>
}

// WrapConnector is for code that calls sql.OpenDB itself. Among several wrappers it is
// the outermost.
func ExampleWrapConnector() {
	db := sql.OpenDB(sqltx.WrapConnector(connector{}))
	defer db.Close()
	fmt.Println(db.PingContext(context.Background()))
	// Output:
	// <nil>
}

// New refuses a pool that nothing follows, because it would miss every commit.
func ExampleNew() {
	store := sqlstore.SQLite()
	plain, err := sql.Open("sqlite", dsn)
	check(err)
	defer plain.Close()
	ob, err := outbox.New(outbox.Config{DB: plain, Store: store, Mode: outbox.WriterOnly{}})
	check(err)
	writer := ob.Writer()
	_, err = sqltx.New(plain, writer)
	var problem *outbox.FieldError
	fmt.Println(errors.As(err, &problem))

	db, err := sqltx.Open("sqlite", dsn)
	check(err)
	defer db.Close()
	ob, err = outbox.New(outbox.Config{DB: db, Store: store, Mode: outbox.WriterOnly{}})
	check(err)
	writer = ob.Writer()
	_, err = sqltx.New(db, writer)
	fmt.Println(err)
	// Output:
	// true
	// <nil>
}

// Code that you cannot change opens a pool of its own on the same database. The poller
// delivers the events of its transactions.
func ExampleAllowUnmanaged() {
	ctx := context.Background()
	db, err := sqltx.Open("sqlite", dsn)
	check(err)
	defer db.Close()
	theirs, err := sql.Open("sqlite", dsn)
	check(err)
	defer theirs.Close()
	store := sqlstore.SQLite()
	check(store.CreateSchema(ctx, db))
	ob, err := outbox.New(outbox.Config{DB: db, Store: store, Mode: outbox.WriterOnly{}})
	check(err)
	writer := ob.Writer()
	a, err := sqltx.New(db, writer, sqltx.AllowUnmanaged())
	check(err)

	tx, err := theirs.BeginTx(ctx, nil)
	check(err)
	_, err = a.Write(ctx, tx, placed("o-1"))
	check(err)
	fmt.Println(tx.Commit())
	// Output:
	// <nil>
}
