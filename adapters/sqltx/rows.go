package sqltx

import (
	"database/sql/driver"
	"errors"
	"io"
	"reflect"
)

// rows shows the transaction an error that comes after the query returned, and frees the query's
// context when the rows are closed. The type has every optional method of [driver.Rows]; for a
// driver that lacks a method, rows answers as database/sql does.
type rows struct {
	driver.Rows
	tx     *transaction
	done   release
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

// followRows wraps the rows of a query in a transaction, because an error may come with the rows.
// pgx and lib/pq report later that such an error made the transaction fail, so their rows are
// wrapped only for done, and for the error of a transaction that has callbacks.
func (c *conn) followRows(inner driver.Rows, err error, done release) (driver.Rows, error) {
	if err != nil {
		done.call()
		return inner, err
	}
	if c.tx == nil || done == nil && !c.connector.silent && !c.tx.Held() {
		return inner, nil
	}
	return &rows{Rows: inner, tx: c.tx, done: done}, nil
}

func (r *rows) observe(err error) error {
	if err != nil && !errors.Is(err, io.EOF) {
		r.failed = true
		r.tx.ObserveError(err)
	}
	return err
}

func (r *rows) Next(dest []driver.Value) error { return r.observe(r.Rows.Next(dest)) }

func (r *rows) Close() error {
	err := r.observe(r.Rows.Close())
	r.done.call()
	if r.failed && r.tx.conn.tx == r.tx {
		r.tx.Verify(r.tx.ctx)
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
