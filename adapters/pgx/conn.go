package outboxpgx

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxkit/outbox-go/internal/txscope"
)

// conn follows the transactions of a connection. The server reports the state of the transaction
// after each statement; the statements themselves matter for savepoints and within batches. pgx
// uses a connection, and so calls these methods, from one goroutine at a time.
type conn struct {
	tap  *tap
	pg   *pgx.Conn
	pool *pgxpool.Pool               // nil for a connection of no pool
	tx   atomic.Pointer[transaction] // nil outside of transactions

	ctx   context.Context // of the running statement
	sql   string          // the running statement
	batch *batch          // the running batch
	// commits: the running statement or batch may commit the transaction.
	commits atomic.Bool
	// undone is why COMMIT must not succeed: a ROLLBACK statement has undone events.
	undone error
	// control has the prepared statements that control transactions, by name.
	control map[string]string
	watched bool
}

// start notes a statement.
func (c *conn) start(ctx context.Context, sql string) context.Context {
	tx := c.current()
	c.ctx, c.sql = ctx, c.text(sql)
	c.commits.Store(tx != nil && !c.pg.IsClosed() && mayCommit(c.sql))
	if c.undone != nil && c.idle() && txscope.Parse(txscope.Postgres, c.sql).Op == txscope.Commit {
		return refusal{ctx, c.undone}
	}
	return ctx
}

// end takes the answer to the statement.
func (c *conn) end(ctx context.Context, tag string, err error) {
	sql := c.sql
	if c.ctx != nil {
		ctx = c.ctx // without the values that other tracers have put into ctx
	}
	c.observe(ctx, sql, tag, err)
	c.settle(ctx, err, func() txscope.End { return endOf(sql, tag, err) })
	c.ctx, c.sql = nil, ""
	c.commits.Store(false)
}

// observe follows a statement, by the text and the answer.
func (c *conn) observe(ctx context.Context, sql, tag string, err error) {
	if pgconn.SafeToRetry(err) && !c.pg.IsClosed() {
		return // the statement was not sent
	}
	tx := c.tx.Load()
	if tx != nil {
		tx.ObserveError(err)
	}
	switch op := txscope.Parse(txscope.Postgres, sql).Op; op {
	case txscope.Begin:
		if err == nil {
			c.begin()
		}
	case txscope.Commit, txscope.Rollback:
		if err != nil || tx == nil {
			return
		}
		if op == txscope.Commit && tag == "ROLLBACK" {
			err = pgx.ErrTxCommitRollback
		}
		if op == txscope.Rollback && tx.Held() {
			c.undone = errUndone
		}
		c.finish(ctx, endOf(sql, tag, nil), err)
	case txscope.Savepoint, txscope.Release, txscope.RollbackTo, txscope.Unclear:
		if tx != nil {
			tx.Observe(ctx, sql, err)
		}
	case txscope.None, txscope.ImplicitCommit:
	}
}

// current returns the open transaction, or nil. The transaction may have begun or ended on the
// connection's [pgconn.PgConn], which has no tracer.
func (c *conn) current() *transaction {
	tx := c.tx.Load()
	switch {
	case c.batch != nil: // the end of the batch brings the state
	case tx == nil && !c.idle() && !c.pg.IsClosed():
		return c.begin()
	case tx != nil && c.idle():
		c.finish(context.Background(), txscope.Unknown, errUnseen)
		return nil
	}
	return tx
}

// settle compares the tap's transaction with the state that the server has reported. ended says how
// a transaction ended whose end was not seen.
func (c *conn) settle(ctx context.Context, err error, ended func() txscope.End) {
	tx := c.tx.Load()
	switch {
	case c.pg.IsClosed():
		c.lost(ctx, err)
	case c.idle():
		if tx != nil {
			c.finish(ctx, ended(), err)
		}
	case tx == nil:
		c.begin()
	default:
		tx.implicit = false
	}
}

// idle reports whether the server said that no transaction is open.
func (c *conn) idle() bool { return c.pg.PgConn().TxStatus() == 'I' }

func (c *conn) begin() *transaction {
	c.undone = nil
	tx := c.tx.Load()
	if tx == nil {
		// The scope never asks the database: the connection reports the state of the transaction.
		tx = &transaction{Scope: txscope.New(txscope.Postgres, nil)}
		c.tx.Store(tx)
	}
	return tx
}

func (c *conn) finish(ctx context.Context, end txscope.End, cause error) {
	if tx := c.tx.Swap(nil); tx != nil {
		tx.outcome = end
		tx.Finish(ctx, end, cause)
	}
}

// lost ends the transaction of a connection that is closed, or will be closed. The connection's
// error does not matter: when the connection breaks, pgx reports "conn closed", and that it is safe
// to retry, even for a COMMIT that the server has executed.
func (c *conn) lost(ctx context.Context, err error) {
	end := c.lostEnd()
	if c.batch != nil {
		c.batch.abandon(end)
	}
	c.finish(ctx, end, err)
}

func (c *conn) lostEnd() txscope.End {
	if c.commits.Load() {
		return txscope.Unknown
	}
	return txscope.RolledBack
}

// release ends the transaction of a connection that goes back to the pool. The pool closes a
// connection with an open transaction.
func (c *conn) release() {
	if pg := c.pg.PgConn(); !pg.IsBusy() && !pg.IsClosed() {
		c.current()
	}
	c.lost(context.Background(), nil)
	c.undone = nil
}

// watch ends the transaction of a connection without a pool when the connection is closed.
func (c *conn) watch() {
	if c.pool != nil || c.watched {
		return
	}
	c.watched = true
	go func() {
		<-c.pg.PgConn().CleanupDone()
		c.finish(context.Background(), c.lostEnd(), nil)
	}()
}

// prepared notes the name of a statement.
func (c *conn) prepared(name, sql string) {
	delete(c.control, name)
	if txscope.Parse(txscope.Postgres, sql).Op == txscope.None {
		return
	}
	if c.control == nil {
		c.control = make(map[string]string)
	}
	c.control[name] = sql
}

// text returns the statement that runs for sql, which may be a name.
func (c *conn) text(sql string) string {
	if prepared, ok := c.control[sql]; ok {
		return prepared
	}
	return sql
}

// endOf says how a transaction ended with a statement. For several statements in a single string,
// the answer is only the answer of the last statement.
func endOf(sql, tag string, err error) txscope.End {
	switch {
	case txscope.Parse(txscope.Postgres, sql).Op == txscope.Unclear:
	case err != nil:
		return txscope.Classify(err) // COMMIT failed
	case tag == "COMMIT":
		return txscope.Committed
	case tag == "ROLLBACK":
		return txscope.RolledBack
	}
	return txscope.Unknown
}

func mayCommit(sql string) bool {
	op := txscope.Parse(txscope.Postgres, sql).Op
	return op == txscope.Commit || op == txscope.Unclear
}

var errUnseen = errors.New("outbox: the transaction was ended on the connection's PgConn, where nothing is traced")

var errUndone = errors.New("outbox: a ROLLBACK statement has undone the transaction's events; COMMIT has nothing to commit")

// refusal is a context with which pgx sends nothing and returns err.
type refusal struct {
	context.Context
	err error
}

// done is closed.
var done = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

func (r refusal) Done() <-chan struct{} { return done }
func (r refusal) Err() error            { return r.err }
