package sqltx

import (
	"context"
	"database/sql/driver"
)

// The optional methods of a connection whose presence means something:
// database/sql prepares statements for connections that cannot execute, which
// changes how arguments are converted, and it keeps a connection after the end
// of a transaction's context only when there are both ResetSession and IsValid.
type (
	connExecer   struct{ c *conn }
	connQueryer  struct{ c *conn }
	connResetter struct {
		c     *conn
		inner driver.SessionResetter
	}
)

func (e connExecer) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	return e.c.exec(ctx, query, args)
}

func (q connQueryer) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	return q.c.query(ctx, query, args)
}

func (r connResetter) ResetSession(ctx context.Context) error {
	r.c.lose()
	return r.inner.ResetSession(ctx)
}

// shapeConn adds to the connection those of the methods that the inner one has.
func shapeConn(c *conn) driver.Conn {
	const (
		execs = 1 << iota
		queries
		resets
		validates
	)
	shape := 0
	if c.execer != nil {
		shape |= execs
	}
	if c.queryer != nil {
		shape |= queries
	}
	resetter, ok := c.Conn.(driver.SessionResetter)
	if ok {
		shape |= resets
	}
	validator, ok := c.Conn.(driver.Validator)
	if ok {
		shape |= validates
	}
	e, q, r := connExecer{c}, connQueryer{c}, connResetter{c, resetter}
	type v = driver.Validator
	switch shape {
	case execs:
		return struct {
			*conn
			connExecer
		}{c, e}
	case queries:
		return struct {
			*conn
			connQueryer
		}{c, q}
	case execs | queries:
		return struct {
			*conn
			connExecer
			connQueryer
		}{c, e, q}
	case resets:
		return struct {
			*conn
			connResetter
		}{c, r}
	case resets | execs:
		return struct {
			*conn
			connResetter
			connExecer
		}{c, r, e}
	case resets | queries:
		return struct {
			*conn
			connResetter
			connQueryer
		}{c, r, q}
	case resets | execs | queries:
		return struct {
			*conn
			connResetter
			connExecer
			connQueryer
		}{c, r, e, q}
	case validates:
		return struct {
			*conn
			v
		}{c, validator}
	case validates | execs:
		return struct {
			*conn
			v
			connExecer
		}{c, validator, e}
	case validates | queries:
		return struct {
			*conn
			v
			connQueryer
		}{c, validator, q}
	case validates | execs | queries:
		return struct {
			*conn
			v
			connExecer
			connQueryer
		}{c, validator, e, q}
	case resets | validates:
		return struct {
			*conn
			connResetter
			v
		}{c, r, validator}
	case resets | validates | execs:
		return struct {
			*conn
			connResetter
			v
			connExecer
		}{c, r, validator, e}
	case resets | validates | queries:
		return struct {
			*conn
			connResetter
			v
			connQueryer
		}{c, r, validator, q}
	case resets | validates | execs | queries:
		return struct {
			*conn
			connResetter
			v
			connExecer
			connQueryer
		}{c, r, validator, e, q}
	default:
		return c
	}
}
