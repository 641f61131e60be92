package sqltx

import (
	"context"
	"database/sql/driver"
	"fmt"
)

// stmt is a prepared statement whose executions are shown to the connection's transaction. The
// statement may have been prepared before the transaction began.
type stmt struct {
	driver.Stmt
	conn  *conn
	query string
}

var (
	_ driver.StmtExecContext   = (*stmt)(nil)
	_ driver.StmtQueryContext  = (*stmt)(nil)
	_ driver.NamedValueChecker = (*stmt)(nil)
)

// ExecContext executes the statement, and shows the statement to the transaction.
func (s *stmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	if err := s.conn.ended(s.query); err != nil {
		return nil, err
	}
	bound, done := s.conn.bind(ctx)
	result, err := s.exec(bound, args)
	done.call()
	s.conn.observe(ctx, s.query, err)
	return result, err
}

func (s *stmt) exec(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	if inner, ok := s.Stmt.(driver.StmtExecContext); ok {
		return inner.ExecContext(ctx, args)
	}
	values := make([]driver.Value, len(args)) // COPY of lib/pq
	for i := range args {
		values[i] = args[i].Value
	}
	return s.Stmt.Exec(values) //nolint:staticcheck // deprecated, and all that this statement has.
}

// QueryContext is ExecContext for a query.
func (s *stmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	inner, ok := s.Stmt.(driver.StmtQueryContext)
	if !ok {
		return nil, fmt.Errorf("sqltx: the driver's %T runs no queries", s.Stmt)
	}
	if err := s.conn.ended(s.query); err != nil {
		return nil, err
	}
	bound, done := s.conn.bind(ctx)
	rows, err := inner.QueryContext(bound, args)
	s.conn.observe(ctx, s.query, err)
	return s.conn.followRows(rows, err, done)
}

// CheckNamedValue uses the check of the statement, otherwise the check of the connection, as in
// database/sql.
func (s *stmt) CheckNamedValue(value *driver.NamedValue) error {
	if checker, ok := s.Stmt.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(value)
	}
	return s.conn.CheckNamedValue(value)
}
