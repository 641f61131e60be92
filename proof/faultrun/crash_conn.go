package faultrun

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/proof/checker"
)

// open opens the pool of a process. Without a crasher the pool has no points.
func (k *crasher) open(spec Spec) (*sql.DB, error) {
	if k == nil {
		return sqltx.Open(spec.Driver, spec.DSN)
	}
	plain, err := sql.Open(spec.Driver, spec.DSN)
	if err != nil {
		return nil, err
	}
	var inner driver.Connector = openWith{plain.Driver(), spec.DSN}
	if d, ok := plain.Driver().(driver.DriverContext); ok {
		if inner, err = d.OpenConnector(spec.DSN); err != nil {
			return nil, err
		}
	}
	return sqltx.OpenDB(crashConnector{inner, k}), plain.Close()
}

type openWith struct {
	driver driver.Driver
	dsn    string
}

func (o openWith) Connect(context.Context) (driver.Conn, error) { return o.driver.Open(o.dsn) }
func (o openWith) Driver() driver.Driver                        { return o.driver }

// crashConnector makes connections whose statements are points.
type crashConnector struct {
	driver.Connector
	k *crasher
}

func (c crashConnector) Connect(ctx context.Context) (driver.Conn, error) {
	c.k.gate()
	inner, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &crashConn{inner: inner.(innerConn), k: c.k}, nil
}

type innerConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
}

// crashConn belongs to a single goroutine at a time, as every connection does.
type crashConn struct {
	inner innerConn
	k     *crasher
	dead  bool   // the process has lost the connection
	in    string // the owner of the open transaction; empty: no transaction is open
	last  string // the last statement in the transaction
}

// linger is how long a process takes to die before a COMMIT.
const linger = 50 * time.Millisecond

// errLost is the error that a client sees when the connection breaks.
var errLost = fmt.Errorf("faultrun: the connection broke: %w", io.ErrUnexpectedEOF)

// around executes a statement, unless the process crashes there. do returns how many rows were
// read.
func (c *crashConn) around(point, arguments string, do func() (rows int, err error)) error {
	k := c.k
	if c.in == "" { // a process that stopped in an open transaction would keep the locks
		k.gate()
	}
	switch {
	case c.dead:
		return driver.ErrBadConn
	case point == "":
		_, err := do()
		return err
	case k.pass(point, KillBefore):
		if strings.HasSuffix(point, ": COMMIT") {
			time.Sleep(linger) // time for anything to happen that must wait for the answer to COMMIT
		}
		k.die()
	case k.pass(point, ExecuteLate, DieAndExecuteLate):
		c.dead = true
		k.later(arguments, func() {
			_, _ = do()
			c.breakOff()
		})
		if k.Fault == DieAndExecuteLate {
			k.freeze()
		}
		return errLost
	}
	rows, err := do()
	if rows > 0 && strings.HasPrefix(point, engine) {
		point += ", with rows"
	}
	if k.pass(point, KillAfter) {
		k.die()
	}
	if k.pass(point, LoseAnswer) {
		c.dead = true
		c.breakOff()
		k.fault(checker.Network, time.Now())
		return errLost
	}
	return err
}

// breakOff closes the connection as a server sees a connection break: an open transaction is rolled
// back. SQLite would keep the lock while a prepared statement is open.
func (c *crashConn) breakOff() {
	if c.k.spec.Driver == "sqlite" {
		_, _ = c.inner.ExecContext(context.Background(), "ROLLBACK", nil)
	}
	_ = c.inner.Close()
}

// point names the code that executes a statement, and the statement's class.
func (c *crashConn) point(ctx context.Context, query string) string {
	whose, ok := ctx.Value(whoseKey{}).(string)
	switch {
	case c.in != "":
		whose = c.in
	case !ok:
		whose = engine
	}
	class := classOf(query, whose)
	if class == "" {
		return ""
	}
	c.last = class
	return whose + ": " + class
}

func (c *crashConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (result driver.Result, err error) {
	if c.prepares(args) {
		return nil, driver.ErrSkip
	}
	ctx = c.detached(ctx)
	err = c.around(c.point(ctx, query), fmt.Sprint(args), func() (int, error) {
		result, err = c.inner.ExecContext(ctx, query, args)
		return 0, err
	})
	return result, err
}

func (c *crashConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (rows driver.Rows, err error) {
	if c.prepares(args) {
		return nil, driver.ErrSkip
	}
	err = c.around(c.point(ctx, query), fmt.Sprint(args), func() (int, error) {
		read, err := c.inner.QueryContext(c.detached(ctx), query, args)
		rows, err = readAll(read, err)
		return lengthOf(rows), err
	})
	return rows, err
}

// prepares reports whether the driver refuses parameters without preparing, as
// go-sql-driver does.
func (c *crashConn) prepares(args []driver.NamedValue) bool {
	return c.k.spec.Driver == "mysql" && len(args) > 0 && !c.dead
}

// detached is the context of a statement: a statement that is executed late must not end with the
// context of the client.
func (c *crashConn) detached(ctx context.Context) context.Context {
	if c.k.Fault == ExecuteLate || c.k.Fault == DieAndExecuteLate {
		return context.WithoutCancel(ctx)
	}
	return ctx
}

func (c *crashConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	c.k.gate()
	if c.dead {
		return nil, driver.ErrBadConn
	}
	inner, err := c.inner.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	return &crashStmt{inner, c, query}, nil
}

func (c *crashConn) Prepare(query string) (driver.Stmt, error) {
	return c.PrepareContext(context.Background(), query)
}

func (c *crashConn) Begin() (driver.Tx, error) {
	return c.BeginTx(context.Background(), driver.TxOptions{})
}

func (c *crashConn) BeginTx(ctx context.Context, opts driver.TxOptions) (tx driver.Tx, err error) {
	whose, ok := ctx.Value(whoseKey{}).(string)
	if !ok {
		whose = engine
	}
	err = c.around(whose+": BEGIN", "", func() (int, error) {
		tx, err = c.inner.BeginTx(c.detached(ctx), opts)
		return 0, err
	})
	if err != nil {
		return nil, err
	}
	if c.in, c.last = whose, ""; whose == engine {
		c.in = engineTx
	}
	return &crashTx{tx, c}, nil
}

// crashTx is a transaction.
type crashTx struct {
	inner driver.Tx
	c     *crashConn
}

func (t *crashTx) Commit() error   { return t.end("COMMIT", t.inner.Commit) }
func (t *crashTx) Rollback() error { return t.end("ROLLBACK", t.inner.Rollback) }

func (t *crashTx) end(how string, do func() error) error {
	point := t.c.in + ": " + how
	if t.c.in == engineTx {
		point += " after " + t.c.last
	}
	err := t.c.around(point, "", func() (int, error) { return 0, do() })
	t.c.in = ""
	return err
}

func (c *crashConn) Close() error {
	if c.dead {
		return nil
	}
	return c.inner.Close()
}

func (c *crashConn) IsValid() bool {
	valid, ok := c.inner.(driver.Validator)
	return !c.dead && (!ok || valid.IsValid())
}

func (c *crashConn) ResetSession(ctx context.Context) error {
	if c.dead {
		return driver.ErrBadConn
	}
	if resetter, ok := c.inner.(driver.SessionResetter); ok {
		return resetter.ResetSession(ctx)
	}
	return nil
}

func (c *crashConn) CheckNamedValue(value *driver.NamedValue) error {
	if checker, ok := c.inner.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(value)
	}
	return driver.ErrSkip
}
