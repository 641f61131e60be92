package sqltx

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
)

// conn is a driver's connection whose transactions are followed. database/sql
// calls it from one goroutine at a time.
//
// It has the optional methods of [driver.Conn] whose absence means the same as
// what it does in their place. Those whose presence means something are added by
// connShape where the inner connection has them.
type conn struct {
	driver.Conn
	connector *connector
	tx        *connTx // nil outside of transactions

	execer   driver.ExecerContext
	queryer  driver.QueryerContext
	preparer driver.ConnPrepareContext
	beginner driver.ConnBeginTx
	checker  driver.NamedValueChecker
	pinger   driver.Pinger
}

var (
	_ driver.ConnPrepareContext = (*conn)(nil)
	_ driver.ConnBeginTx        = (*conn)(nil)
	_ driver.NamedValueChecker  = (*conn)(nil)
	_ driver.Pinger             = (*conn)(nil)
)

func wrapConn(connector *connector, inner driver.Conn) driver.Conn {
	c := &conn{Conn: inner, connector: connector}
	c.execer, c.queryer = contextExecer(inner), contextQueryer(inner)
	c.preparer, _ = inner.(driver.ConnPrepareContext)
	c.beginner, _ = inner.(driver.ConnBeginTx)
	c.checker, _ = inner.(driver.NamedValueChecker)
	c.pinger, _ = inner.(driver.Pinger)
	return shapeConn(c)
}

// Unwrap is the driver's own connection, for the functions given to
// [sql.Conn.Raw].
func (c *conn) Unwrap() driver.Conn { return c.Conn }

// Close loses a transaction that has not ended.
func (c *conn) Close() error {
	err := c.Conn.Close()
	c.lose()
	return err
}

func (c *conn) lose() {
	if c.tx != nil {
		c.tx.lost()
	}
}

// Ping is nothing where the driver has none, as in database/sql.
func (c *conn) Ping(ctx context.Context) error {
	if c.pinger == nil {
		return nil
	}
	return c.pinger.Ping(ctx)
}

// CheckNamedValue leaves it to database/sql where the driver has none.
func (c *conn) CheckNamedValue(value *driver.NamedValue) error {
	if c.checker == nil {
		return driver.ErrSkip
	}
	return c.checker.CheckNamedValue(value)
}

func (c *conn) exec(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if query == captureQuery && c.answer(ctx) {
		return driver.ResultNoRows, nil
	}
	result, err := c.execer.ExecContext(ctx, query, args)
	c.observe(ctx, query, err)
	return result, err
}

func (c *conn) query(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	rows, err := c.queryer.QueryContext(ctx, query, args)
	c.observe(ctx, query, err)
	return c.watchRows(rows, err)
}

// observe shows a statement to the transaction it ran in.
func (c *conn) observe(ctx context.Context, query string, err error) {
	if c.tx != nil && !errors.Is(err, driver.ErrSkip) {
		c.tx.observe(ctx, query, err)
	}
}

// PrepareContext wraps the statement where its execution says something about
// the transaction.
func (c *conn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	if query == captureQuery && c.answer(ctx) {
		return answered{}, nil
	}
	inner, err := c.prepare(ctx, query)
	if err != nil {
		if c.tx != nil {
			c.tx.scope.ObserveError(err)
		}
		return nil, err
	}
	return wrapStmt(c, inner, query), nil
}

func (c *conn) prepare(ctx context.Context, query string) (driver.Stmt, error) {
	if c.preparer != nil {
		return c.preparer.PrepareContext(ctx, query)
	}
	stmt, err := c.Prepare(query)
	if err == nil && ctx.Err() != nil {
		_ = stmt.Close()
		return nil, ctx.Err()
	}
	return stmt, err
}

// BeginTx begins a transaction whose context the driver does not watch: some
// drivers would break off a COMMIT. The end of ctx interrupts BEGIN; later it is
// database/sql that rolls back.
func (c *conn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	c.lose()
	inner, cancel, forwarding := ctx, context.CancelFunc(func() {}), func() bool { return true }
	if ctx.Done() != nil { // else it is spared the driver's watching, too
		inner, cancel = context.WithCancel(context.WithoutCancel(ctx))
		forwarding = context.AfterFunc(ctx, cancel)
	}
	tx, err := c.begin(inner, opts)
	if !forwarding() && err == nil {
		_ = tx.Rollback()
		err = ctx.Err()
	}
	if err != nil {
		cancel()
		return nil, err
	}
	c.tx = newConnTx(ctx, c, tx, cancel)
	return c.tx, nil
}

func (c *conn) begin(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	switch {
	case c.beginner != nil:
		return c.beginner.BeginTx(ctx, opts)
	case opts.Isolation != driver.IsolationLevel(sql.LevelDefault):
		return nil, errors.New("sqltx: the driver does not support non-default isolation levels")
	case opts.ReadOnly:
		return nil, errors.New("sqltx: the driver does not support read-only transactions")
	}
	tx, err := c.Conn.Begin() //nolint:staticcheck // deprecated, and all that this driver has.
	if err == nil && ctx.Err() != nil {
		_ = tx.Rollback()
		return nil, ctx.Err()
	}
	return tx, err
}
