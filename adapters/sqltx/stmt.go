package sqltx

import (
	"context"
	"database/sql/driver"
	"errors"
)

// stmt is a prepared statement whose executions are shown to the connection's
// transaction. It may have been prepared before the transaction began.
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

// columnConverter is deprecated, but its presence changes how arguments are
// converted.
type columnConverter = driver.ColumnConverter //nolint:staticcheck // drivers have it.

func followStmt(c *conn, inner driver.Stmt, query string) driver.Stmt {
	s := &stmt{Stmt: inner, conn: c, query: query}
	if converter, ok := inner.(columnConverter); ok {
		return struct {
			*stmt
			columnConverter
		}{s, converter}
	}
	return s
}

// ExecContext executes the statement, and shows it to the transaction.
func (s *stmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
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
	values, err := unnamed(ctx, args)
	if err != nil {
		return nil, err
	}
	return s.Stmt.Exec(values) //nolint:staticcheck // deprecated, and all that this driver has.
}

// QueryContext is ExecContext for a query.
func (s *stmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	bound, done := s.conn.bind(ctx)
	rows, err := s.queryContext(bound, args)
	s.conn.observe(ctx, s.query, err)
	return s.conn.followRows(rows, err, done)
}

func (s *stmt) queryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	if inner, ok := s.Stmt.(driver.StmtQueryContext); ok {
		return inner.QueryContext(ctx, args)
	}
	values, err := unnamed(ctx, args)
	if err != nil {
		return nil, err
	}
	return s.Stmt.Query(values) //nolint:staticcheck // deprecated, and all that this driver has.
}

// CheckNamedValue is the statement's, else the connection's, as in database/sql.
func (s *stmt) CheckNamedValue(value *driver.NamedValue) error {
	if checker, ok := s.Stmt.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(value)
	}
	return s.conn.CheckNamedValue(value)
}

// unnamed is the arguments for a driver's method without context and names.
func unnamed(ctx context.Context, args []driver.NamedValue) ([]driver.Value, error) {
	values := make([]driver.Value, len(args))
	for i := range args {
		if args[i].Name != "" {
			return nil, errors.New("sqltx: the driver does not support named parameters")
		}
		values[i] = args[i].Value
	}
	return values, ctx.Err()
}
