package sqltx

import (
	"context"
	"database/sql/driver"
	"errors"
)

// contextExecer is the connection's, or one made of the older method without a
// context, or nil when it has neither.
func contextExecer(c driver.Conn) driver.ExecerContext {
	switch c := c.(type) {
	case driver.ExecerContext:
		return c
	case driver.Execer: //nolint:staticcheck // deprecated, but drivers have it.
		return legacyExecer{c}
	default:
		return nil
	}
}

// contextQueryer is contextExecer for queries.
func contextQueryer(c driver.Conn) driver.QueryerContext {
	switch c := c.(type) {
	case driver.QueryerContext:
		return c
	case driver.Queryer: //nolint:staticcheck // deprecated, but drivers have it.
		return legacyQueryer{c}
	default:
		return nil
	}
}

type (
	legacyExecer  struct{ driver.Execer }  //nolint:staticcheck // as above.
	legacyQueryer struct{ driver.Queryer } //nolint:staticcheck // as above.
)

func (e legacyExecer) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	values, err := unnamed(ctx, args)
	if err != nil {
		return nil, err
	}
	return e.Exec(query, values)
}

func (q legacyQueryer) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	values, err := unnamed(ctx, args)
	if err != nil {
		return nil, err
	}
	return q.Query(query, values)
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
