package sqltx

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/outboxkit/outbox-go/outbox"
)

// askQuery is the statement with which an adapter asks the connection for its
// transaction. A followed connection answers it without the database. Any other
// connection sends it to the database, where it changes nothing.
const askQuery = "SELECT 1"

// question is a context with a question, and room for the answer.
type question struct {
	context.Context
	connector *connector
	above     above

	found   *transaction // nil without an answer
	foreign bool         // the answer came from another pool's connection
}

type questionKey struct{}

// Value returns the question itself for questionKey.
func (q *question) Value(key any) any {
	if key == (questionKey{}) {
		return q
	}
	return q.Context.Value(key)
}

// ask finds the transaction of above.execer. Errors are
// [outbox.ErrNoTransaction] for one that is over, [outbox.ErrForeignTransaction],
// [outbox.ErrUnmanagedTransaction], and that of ctx.
func ask(ctx context.Context, c *connector, above above) (*transaction, error) {
	q := &question{Context: ctx, connector: c, above: above}
	if ctx.Err() != nil {
		q.Context = context.WithoutCancel(ctx) // database/sql would not even look
	}
	_, err := above.execer.ExecContext(q, askQuery)
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

// beginContext is the context of a BEGIN of ours, and room for the transaction that
// began: it need not be asked for.
type beginContext struct {
	context.Context
	begun *transaction
}

// answer answers the question in the context, if there is one.
func (c *conn) answer(ctx context.Context) bool {
	q, ok := ctx.Value(questionKey{}).(*question)
	if !ok || c.tx == nil {
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

// answered is the prepared askQuery: a session of GORM with PrepareStmt, within
// another one, prepares every statement.
type answered struct{}

func (answered) Close() error                               { return nil }
func (answered) NumInput() int                              { return 0 }
func (answered) Exec([]driver.Value) (driver.Result, error) { return driver.ResultNoRows, nil }
func (answered) Query([]driver.Value) (driver.Rows, error)  { return nil, driver.ErrSkip }
