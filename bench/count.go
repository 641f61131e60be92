package main

import (
	"context"
	"database/sql/driver"
	"time"

	"github.com/jackc/pgx/v5"
)

// The statements of a database are counted once [database.counting] is set: by a tracer of pgx, and
// by a wrapped connection of the other drivers. Preparing a statement does not count, executing a
// statement does. The tracer and the connections also note when a COMMIT was answered.

func (db *database) count() {
	if db.counting.Load() {
		db.statements.Add(1)
	}
}

// start is the origin of all measured times.
var start = time.Now()

func (db *database) answered() { db.committed.Store(int64(time.Since(start))) }

// lastCommit is when the last COMMIT was answered.
func (db *database) lastCommit() time.Time { return start.Add(time.Duration(db.committed.Load())) }

// tracer watches the statements that pgx sends.
type tracer struct{ db *database }

func (t tracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	t.db.count()
	return ctx
}

func (t tracer) TraceQueryEnd(_ context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	if data.CommandTag.String() == "COMMIT" {
		t.db.answered()
	}
}

func (t tracer) TraceCopyFromStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceCopyFromStartData) context.Context {
	t.db.count()
	return ctx
}
func (tracer) TraceCopyFromEnd(context.Context, *pgx.Conn, pgx.TraceCopyFromEndData) {}

func (tracer) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

func (t tracer) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) { t.db.count() }
func (tracer) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)       {}

// countingConnector counts the statements that another driver sends.
type countingConnector struct {
	driver.Connector

	db *database
}

func (c countingConnector) Connect(ctx context.Context) (driver.Conn, error) {
	inner, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return countingConn{inner.(driverConn), c.db}, nil
}

// driverConn has the methods that the connections of MariaDB's and of SQLite's driver share.
type driverConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.Pinger
	driver.SessionResetter
	driver.Validator
}

type countingConn struct {
	driverConn

	db *database
}

func (c countingConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	c.db.count()
	return c.driverConn.ExecContext(ctx, query, args)
}

func (c countingConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	c.db.count()
	return c.driverConn.QueryContext(ctx, query, args)
}

func (c countingConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	stmt, err := c.driverConn.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	return countingStmt{stmt.(driverStmt), c.db}, nil
}

func (c countingConn) CheckNamedValue(value *driver.NamedValue) error {
	return checkNamedValue(c.driverConn, value)
}

// checkNamedValue calls the method of the inner value, if that value has the method.
func checkNamedValue(inner any, value *driver.NamedValue) error {
	if checker, ok := inner.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(value)
	}
	return driver.ErrSkip
}

func (c countingConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	c.db.count()
	if opts.Isolation != 0 {
		c.db.count() // MariaDB's driver sets the level by a statement
	}
	tx, err := c.driverConn.BeginTx(ctx, opts)
	if err != nil {
		return nil, err
	}
	return countingTx{tx, c.db}, nil
}

type countingTx struct {
	driver.Tx

	db *database
}

func (tx countingTx) Commit() error {
	tx.db.count()
	defer tx.db.answered()
	return tx.Tx.Commit()
}

func (tx countingTx) Rollback() error {
	tx.db.count()
	return tx.Tx.Rollback()
}

// driverStmt has the methods that the statements of both drivers share.
type driverStmt interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
}

type countingStmt struct {
	driverStmt

	db *database
}

func (s countingStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	s.db.count()
	return s.driverStmt.ExecContext(ctx, args)
}

func (s countingStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	s.db.count()
	return s.driverStmt.QueryContext(ctx, args)
}

func (s countingStmt) CheckNamedValue(value *driver.NamedValue) error {
	return checkNamedValue(s.driverStmt, value)
}
