package sqltx

import (
	"database/sql/driver"
	"errors"
	"io"
	"reflect"
)

// rows tells the transaction of an error that comes after the query returned.
// It has every optional method of [driver.Rows], and answers as database/sql
// does for a driver that lacks one.
type rows struct {
	driver.Rows
	tx     *connTx
	failed bool
}

var (
	_ driver.RowsNextResultSet              = (*rows)(nil)
	_ driver.RowsColumnTypeScanType         = (*rows)(nil)
	_ driver.RowsColumnTypeDatabaseTypeName = (*rows)(nil)
	_ driver.RowsColumnTypeLength           = (*rows)(nil)
	_ driver.RowsColumnTypeNullable         = (*rows)(nil)
	_ driver.RowsColumnTypePrecisionScale   = (*rows)(nil)
)

// watchRows wraps the rows of a query where they may tell that the transaction
// is gone.
func (c *conn) watchRows(inner driver.Rows, err error) (driver.Rows, error) {
	if err != nil || c.tx == nil || !c.losesTransactions() {
		return inner, err
	}
	return &rows{Rows: inner, tx: c.tx}, nil
}

func (r *rows) observe(err error) error {
	if err != nil && !errors.Is(err, io.EOF) {
		r.failed = true
		r.tx.scope.ObserveError(err)
	}
	return err
}

func (r *rows) Next(dest []driver.Value) error { return r.observe(r.Rows.Next(dest)) }

func (r *rows) Close() error {
	err := r.observe(r.Rows.Close())
	if r.failed && r.tx.conn.tx == r.tx {
		r.tx.scope.Verify(r.tx.ctx)
	}
	return err
}

func (r *rows) HasNextResultSet() bool {
	inner, ok := r.Rows.(driver.RowsNextResultSet)
	return ok && inner.HasNextResultSet()
}

func (r *rows) NextResultSet() error {
	inner, ok := r.Rows.(driver.RowsNextResultSet)
	if !ok {
		return io.EOF
	}
	return r.observe(inner.NextResultSet())
}

func (r *rows) ColumnTypeScanType(index int) reflect.Type {
	if inner, ok := r.Rows.(driver.RowsColumnTypeScanType); ok {
		return inner.ColumnTypeScanType(index)
	}
	return reflect.TypeFor[any]()
}

func (r *rows) ColumnTypeDatabaseTypeName(index int) string {
	if inner, ok := r.Rows.(driver.RowsColumnTypeDatabaseTypeName); ok {
		return inner.ColumnTypeDatabaseTypeName(index)
	}
	return ""
}

func (r *rows) ColumnTypeLength(index int) (length int64, ok bool) {
	if inner, has := r.Rows.(driver.RowsColumnTypeLength); has {
		return inner.ColumnTypeLength(index)
	}
	return 0, false
}

func (r *rows) ColumnTypeNullable(index int) (nullable, ok bool) {
	if inner, has := r.Rows.(driver.RowsColumnTypeNullable); has {
		return inner.ColumnTypeNullable(index)
	}
	return false, false
}

func (r *rows) ColumnTypePrecisionScale(index int) (precision, scale int64, ok bool) {
	if inner, has := r.Rows.(driver.RowsColumnTypePrecisionScale); has {
		return inner.ColumnTypePrecisionScale(index)
	}
	return 0, 0, false
}
