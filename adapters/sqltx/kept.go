package sqltx

import (
	"context"
	"database/sql/driver"
	"slices"
)

// maxKept is how many prepared statements a connection keeps: the statements for a single event and
// for a batch of the usual size.
const maxKept = 3

// keepContext is the context of a statement of the outbox, which the connection
// may keep prepared.
type keepContext struct{ context.Context }

// execKept runs a kept statement. A statement that failed is not kept: the server may have lost it,
// as behind a proxy.
func (c *conn) execKept(ctx context.Context, s *stmt, args []driver.NamedValue) (driver.Result, error) {
	result, err := s.exec(ctx, args)
	if err != nil {
		_ = s.Close()
		c.kept = slices.DeleteFunc(c.kept, func(kept *stmt) bool { return kept == s })
	}
	return result, err
}

// keep returns a statement of the outbox that stays prepared until the connection closes, or nil
// when it cannot be prepared. For a driver that cannot send parameters without preparing, such as
// go-sql-driver, keep saves a round trip for each event; SQLite need not compile the statement
// again.
func (c *conn) keep(ctx context.Context, query string) *stmt {
	at := slices.IndexFunc(c.kept, func(s *stmt) bool { return s.query == query })
	if at < 0 {
		inner, err := c.driverConn.PrepareContext(ctx, query)
		if err != nil {
			return nil
		}
		if len(c.kept) == maxKept {
			_ = c.kept[0].Close()
			c.kept = slices.Delete(c.kept, 0, 1)
		}
		at = len(c.kept)
		c.kept = append(c.kept, &stmt{Stmt: inner, conn: c, query: query})
	}
	s := c.kept[at]
	if last := len(c.kept) - 1; at < last {
		c.kept = append(slices.Delete(c.kept, at, at+1), s)
	}
	return s
}
