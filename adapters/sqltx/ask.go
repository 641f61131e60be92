package sqltx

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// askQuery is the statement with which an adapter asks the connection for the connection's
// transaction. The context has the question, because a library above the connection may change the
// text. A followed connection does not send this text to the database. A changed text is sent; it
// changes nothing there.
const askQuery = "SELECT 1"

// question is a context with a question, and room for the answer.
type question struct {
	context.Context
	connector *connector // nil when the question is which connector the pool has
	above     above

	found   *transaction // nil without an answer
	foreign bool         // the answer came from another pool's connection
	pool    *connector   // the answer to the other question
}

// questions counts the open questions: without an open question, no statement's context is
// searched.
var questions atomic.Int32

// questionOf returns the question in the context, or nil.
func questionOf(ctx context.Context) *question {
	if questions.Load() == 0 {
		return nil
	}
	q, _ := ctx.Value(questionKey{}).(*question)
	return q
}

type questionKey struct{}

// Value returns the question itself for questionKey.
func (q *question) Value(key any) any {
	if key == (questionKey{}) {
		return q
	}
	return q.Context.Value(key)
}

// ask finds the transaction of above.execer. Errors are [outbox.ErrNoTransaction] for a transaction
// that is over, [outbox.ErrForeignTransaction], [outbox.ErrUnmanagedTransaction], and the error of
// ctx.
func ask(ctx context.Context, c *connector, above above) (*transaction, error) {
	q := &question{Context: ctx, connector: c, above: above}
	if ctx.Err() != nil {
		q.Context = context.WithoutCancel(ctx) // database/sql would not even look
	}
	err := q.put(above.execer)
	switch {
	case q.found != nil:
		return q.found, nil
	case q.foreign:
		return nil, fmt.Errorf("%w: it was begun on another pool than the adapter's; write with the adapter of that one",
			outbox.ErrForeignTransaction)
	case errors.Is(err, sql.ErrTxDone):
		return nil, fmt.Errorf("%w: %w", outbox.ErrNoTransaction, err)
	case ctx.Err() != nil:
		return nil, ctx.Err()
	}
	return nil, fmt.Errorf("%w: open its pool with sqltx.Open, or begin it on sqltx.Watch(pool); "+
		"or give the adapter the option AllowUnmanaged and let the poller deliver its events", outbox.ErrUnmanagedTransaction)
}

// put runs the statement that carries the question.
func (q *question) put(execer outbox.Execer) error {
	questions.Add(1)
	defer questions.Add(-1)
	_, err := execer.ExecContext(q, askQuery)
	return err
}

// askTime bounds how long a pool is asked for its connector: a pool that is not followed connects
// to the database.
const askTime = 5 * time.Second

// askPool returns the connector of a pool whose followed connections have a wrapper around them, or
// nil.
func askPool(pool *sql.DB) *connector {
	ctx, cancel := context.WithTimeout(context.Background(), askTime)
	defer cancel()
	q := &question{Context: ctx}
	_ = q.put(pool)
	return q.pool
}

// beginContext is the context of a BEGIN of ours, with room for the transaction that began, so that
// the adapter need not ask for it.
type beginContext struct {
	context.Context
	begun *transaction
}

// answer answers the question in the context, if there is one.
func (c *conn) answer(ctx context.Context) bool {
	q := questionOf(ctx)
	if q == nil {
		return false
	}
	if q.connector == nil {
		q.pool = c.connector
		return true
	}
	if c.tx == nil {
		return false
	}
	if c.connector != q.connector {
		q.foreign = true
		return true
	}
	if c.tx.above.execer == nil {
		c.tx.learn(q.above)
	}
	c.tx.Verify(ctx)
	q.found = c.tx
	return true
}

// answered is the prepared askQuery: a session of GORM with PrepareStmt, within another session,
// prepares every statement.
type answered struct{}

func (answered) Close() error                               { return nil }
func (answered) NumInput() int                              { return 0 }
func (answered) Exec([]driver.Value) (driver.Result, error) { return driver.ResultNoRows, nil }
func (answered) Query([]driver.Value) (driver.Rows, error)  { return nil, driver.ErrSkip }
