package sqltx

import (
	"context"
	"database/sql/driver"

	"github.com/outboxkit/outbox-go/internal/txscope"
)

// stmt is a prepared statement that tells its connection's transaction of each
// execution. It may have been prepared before the transaction began.
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

// wrapStmt wraps the statement, unless it is an ordinary one on PostgreSQL, which
// never ends a transaction because of those.
func wrapStmt(c *conn, inner driver.Stmt, query string) driver.Stmt {
	if !c.losesTransactions() && txscope.Parse(query).Op == txscope.None {
		return inner
	}
	s := &stmt{Stmt: inner, conn: c, query: query}
	if converter, ok := inner.(columnConverter); ok {
		return struct {
			*stmt
			columnConverter
		}{s, converter}
	}
	return s
}

// losesTransactions reports whether the database may end a transaction because
// of a statement that failed, and go on without one.
func (c *conn) losesTransactions() bool { return c.connector.dialect() != txscope.Postgres }

func (s *stmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	result, err := s.exec(ctx, args)
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

func (s *stmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	rows, err := s.queryContext(ctx, args)
	s.conn.observe(ctx, s.query, err)
	return s.conn.watchRows(rows, err)
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
