package faultrun

import (
	"bytes"
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
)

// crashStmt is a prepared statement.
type crashStmt struct {
	driver.Stmt
	c     *crashConn
	query string
}

func (s *crashStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (result driver.Result, err error) {
	err = s.c.around(s.c.point(ctx, s.query), fmt.Sprint(args), func() (int, error) {
		result, err = s.Stmt.(driver.StmtExecContext).ExecContext(s.c.detached(ctx), args)
		return 0, err
	})
	return result, err
}

func (s *crashStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (rows driver.Rows, err error) {
	err = s.c.around(s.c.point(ctx, s.query), fmt.Sprint(args), func() (int, error) {
		read, err := s.Stmt.(driver.StmtQueryContext).QueryContext(s.c.detached(ctx), args)
		rows, err = readAll(read, err)
		return lengthOf(rows), err
	})
	return rows, err
}

func (s *crashStmt) Close() error {
	if s.c.dead {
		return nil
	}
	return s.Stmt.Close()
}

func (s *crashStmt) CheckNamedValue(value *driver.NamedValue) error {
	if checker, ok := s.Stmt.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(value)
	}
	return s.c.CheckNamedValue(value)
}

// readRows are rows that were read to their end, so that the database has executed
// the statement.
type readRows struct {
	columns []string
	values  [][]driver.Value
	next    int
}

func readAll(rows driver.Rows, err error) (driver.Rows, error) {
	if err != nil {
		return nil, err
	}
	read := &readRows{columns: rows.Columns()}
	for {
		values := make([]driver.Value, len(read.columns))
		if err := rows.Next(values); errors.Is(err, io.EOF) {
			return read, rows.Close()
		} else if err != nil {
			_ = rows.Close()
			return nil, err
		}
		for i := range values {
			if text, ok := values[i].([]byte); ok {
				values[i] = bytes.Clone(text)
			}
		}
		read.values = append(read.values, values)
	}
}

func lengthOf(rows driver.Rows) int {
	if read, ok := rows.(*readRows); ok && read != nil {
		return len(read.values)
	}
	return 0
}

func (r *readRows) Columns() []string { return r.columns }
func (r *readRows) Close() error      { return nil }

func (r *readRows) Next(into []driver.Value) error {
	if r.next == len(r.values) {
		return io.EOF
	}
	copy(into, r.values[r.next])
	r.next++
	return nil
}
