package sqltx

import (
	"context"
	"database/sql/driver"
	"log/slog"
)

// captureQuery is the statement with which an adapter asks the connection of a
// transaction what it knows of it. A wrapped connection answers by itself; any
// other sends it to the database, where it does no harm.
const captureQuery = "SELECT 1"

type captureKey struct{}

// capture is the question, in a context, and has room for the answer.
type capture struct {
	dialect string // the adapter's
	log     *slog.Logger

	scope     connScope // without source and execer; its Scope is nil without an answer
	connector uint64    // the id of the connection's connector
}

// answer tells the context's capture, if there is one, of the transaction.
func (c *conn) answer(ctx context.Context) bool {
	asked, ok := ctx.Value(captureKey{}).(*capture)
	if !ok || c.tx == nil {
		return false
	}
	c.tx.attach(asked.dialect)
	c.tx.callbacks.logTo(asked.log)
	c.tx.scope.Verify(ctx)
	asked.connector = c.connector.id
	asked.scope = connScope{Scope: c.tx.scope, callbacks: &c.tx.callbacks}
	return true
}

// answered is the prepared captureQuery, for a driver whose connections can
// execute only what was prepared.
type answered struct{}

func (answered) Close() error                               { return nil }
func (answered) NumInput() int                              { return 0 }
func (answered) Exec([]driver.Value) (driver.Result, error) { return driver.ResultNoRows, nil }
func (answered) Query([]driver.Value) (driver.Rows, error)  { return nil, driver.ErrSkip }
