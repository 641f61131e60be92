package sqltx

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/outboxkit/outbox-go/internal/txscope"
)

// driverConn is the interface that a driver's connection must have. The connections of all
// supported drivers have it.
type driverConn interface {
	driver.Conn
	driver.ConnPrepareContext
	driver.ConnBeginTx
	driver.ExecerContext
	driver.QueryerContext
}

// conn is a driver's connection whose transactions are followed. database/sql calls conn from one
// goroutine at a time.
type conn struct {
	driverConn
	connector *connector
	loan      *loan                                         // nil unless the connection is borrowed
	tx        *transaction                                  // nil outside of transactions
	inquire   func(ctx context.Context, query string) error // run, made once
	kept      []*stmt                                       // see keep; the last used is last
	// broken: the connection must not be used again.
	broken bool
	// keeps: database/sql keeps the driver's own connection after it has rolled a
	// transaction back because a context ended.
	keeps bool

	checker  driver.NamedValueChecker
	pinger   driver.Pinger
	resetter driver.SessionResetter
	valid    driver.Validator
}

var (
	_ driverConn               = (*conn)(nil)
	_ driver.NamedValueChecker = (*conn)(nil)
	_ driver.Pinger            = (*conn)(nil)
	_ driver.SessionResetter   = (*conn)(nil)
	_ driver.Validator         = (*conn)(nil)
)

func newConn(connector *connector, made driver.Conn) (driver.Conn, error) {
	c := &conn{connector: connector}
	inner := made
	if l, ok := made.(*loan); ok {
		c.loan, inner = l, l.Conn
	}
	var ok bool
	if c.driverConn, ok = inner.(driverConn); !ok {
		_ = made.Close()
		return nil, fmt.Errorf("sqltx: the driver is not supported: its %T lacks one of ExecContext, QueryContext, PrepareContext and BeginTx", inner)
	}
	c.inquire = c.run
	c.checker, _ = inner.(driver.NamedValueChecker)
	c.pinger, _ = inner.(driver.Pinger)
	c.resetter, _ = inner.(driver.SessionResetter)
	c.valid, _ = inner.(driver.Validator)
	c.keeps = c.resetter != nil && c.valid != nil
	return c, nil
}

// Unwrap returns the driver's own connection, for the functions given to [sql.Conn.Raw].
func (c *conn) Unwrap() driver.Conn { return c.driverConn }

// Close closes the connection, or gives a borrowed connection back. The end of an open transaction
// is then unknown.
func (c *conn) Close() error {
	var err error
	for _, s := range c.kept {
		_ = s.Close()
	}
	if c.loan != nil {
		err = c.loan.giveBack(c.broken || c.tx != nil || c.valid != nil && !c.valid.IsValid())
	} else {
		err = c.driverConn.Close()
	}
	if c.tx != nil {
		c.tx.end(txscope.Unknown, driver.ErrBadConn)
	}
	return err
}

// IsValid tells database/sql whether it may keep the connection.
func (c *conn) IsValid() bool {
	return !c.broken && (c.valid == nil || c.valid.IsValid()) && (c.loan == nil || !c.loan.due())
}

// ResetSession does nothing where the driver has no ResetSession, as in database/sql.
func (c *conn) ResetSession(ctx context.Context) error {
	switch {
	case c.broken:
		return driver.ErrBadConn
	case c.resetter == nil:
		return nil
	}
	return c.note(c.resetter.ResetSession(ctx))
}

// Ping does nothing where the driver has no Ping, as in database/sql.
func (c *conn) Ping(ctx context.Context) error {
	if c.pinger == nil {
		return nil
	}
	return c.note(c.pinger.Ping(ctx))
}

// CheckNamedValue leaves the check to database/sql where the driver has no CheckNamedValue.
func (c *conn) CheckNamedValue(value *driver.NamedValue) error {
	if c.checker == nil {
		return driver.ErrSkip
	}
	return c.checker.CheckNamedValue(value)
}

// ExecContext runs a statement, and shows the statement to the transaction.
func (c *conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if c.answer(ctx) && query == askQuery {
		return driver.ResultNoRows, nil
	}
	if err := c.ended(query); err != nil {
		return nil, err
	}
	keep, ours := ctx.(keepContext)
	if ours {
		ctx = keep.Context
	}
	bound, done := c.bind(ctx)
	result, err := c.exec(bound, query, args, ours)
	done.call()
	c.observe(ctx, query, err)
	return result, err
}

// exec executes a statement. A statement of the outbox is executed as a prepared statement where
// that is cheaper.
func (c *conn) exec(ctx context.Context, query string, args []driver.NamedValue, ours bool) (driver.Result, error) {
	if ours && c.connector.dialect() == txscope.SQLite {
		if kept := c.keep(ctx, query); kept != nil {
			return c.execKept(ctx, kept, args)
		}
	}
	result, err := c.driverConn.ExecContext(ctx, query, args)
	if ours && errors.Is(err, driver.ErrSkip) {
		if kept := c.keep(ctx, query); kept != nil {
			return c.execKept(ctx, kept, args)
		}
	}
	return result, err
}

// QueryContext is ExecContext for a query.
func (c *conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if err := c.ended(query); err != nil {
		return nil, err
	}
	bound, done := c.bind(ctx)
	rows, err := c.driverConn.QueryContext(bound, query, args)
	c.observe(ctx, query, err)
	return c.followRows(rows, err, done)
}

// ended is the error of a statement that would commit by itself, because the database has rolled the
// whole transaction back, as MySQL after a deadlock. Statements that control transactions are sent.
func (c *conn) ended(query string) error {
	if c.tx == nil {
		return nil
	}
	cause := c.tx.Gone()
	if cause == nil || txscope.Parse(c.connector.dialect(), query).Op != txscope.None {
		return nil
	}
	return fmt.Errorf("outbox: the statement is not sent, for the database has rolled the transaction back: %w", cause)
}

// observe shows a statement to the transaction in which the statement ran.
func (c *conn) observe(ctx context.Context, query string, err error) {
	_ = c.note(err)
	if c.tx != nil && !errors.Is(err, driver.ErrSkip) {
		c.tx.Observe(ctx, query, err)
		c.tx.verify(err)
	}
}

// note remembers that the driver has given the connection up.
func (c *conn) note(err error) error {
	if err != nil && errors.Is(err, driver.ErrBadConn) {
		c.broken = true
	}
	return err
}

// PrepareContext prepares a statement whose executions are followed.
func (c *conn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	if c.answer(ctx) && query == askQuery {
		return answered{}, nil
	}
	bound, done := c.bind(ctx)
	inner, err := c.driverConn.PrepareContext(bound, query)
	done.call()
	if err != nil {
		_ = c.note(err)
		if c.tx != nil {
			c.tx.ObserveError(err)
			c.tx.verify(err)
		}
		return nil, err
	}
	return &stmt{Stmt: inner, conn: c, query: query}, nil
}

// BeginTx begins a transaction whose context the driver does not watch, because
// some drivers would interrupt a COMMIT. The end of ctx interrupts BEGIN; later
// database/sql rolls back.
func (c *conn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	asking, asked := ctx.(*beginContext)
	if asked {
		ctx = asking.Context
	}
	inner, cancel, forwarding := ctx, context.CancelFunc(func() {}), func() bool { return true }
	if ctx.Done() != nil {
		inner, cancel = context.WithCancel(context.WithoutCancel(ctx))
		forwarding = context.AfterFunc(ctx, cancel)
	}
	tx, err := c.driverConn.BeginTx(inner, opts)
	if !forwarding() && err == nil {
		c.broken = tx.Rollback() != nil
		err = ctx.Err()
	}
	if err != nil {
		cancel()
		return nil, c.note(err)
	}
	c.tx = newTransaction(ctx, c, tx, cancel)
	if asked {
		asking.begun = c.tx
	}
	return c.tx, nil
}

// run runs a statement of ours. The statement is not observed.
func (c *conn) run(ctx context.Context, query string) error {
	_, err := c.driverConn.ExecContext(ctx, query, nil)
	return err
}
