package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// errOwnMemory is why a pool on ":memory:" cannot work.
var errOwnMemory = errors.New("the database is in memory, and each connection of the pool has one of its own; " +
	`call db.SetMaxOpenConns(1), or open "file:name?mode=memory&cache=shared", or a file`)

// secondTime bounds the wait for a second connection: the pool may have no more than one.
const secondTime = time.Second

// checkMemory refuses a database of SQLite that the connections of the pool do not share:
// the first connection has the table, and the second has not.
func (s *Store) checkMemory(ctx context.Context, db outbox.DB) error {
	pool, ok := outbox.PoolOf(db).(*sql.DB)
	if !ok || s.table.Schema != "" || pool.Stats().MaxOpenConnections == 1 {
		return nil
	}
	first, err := pool.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = first.Close() }()
	var file string
	if err := first.QueryRowContext(ctx, "SELECT file FROM pragma_database_list WHERE name = 'main'").Scan(&file); err != nil || file != "" {
		return err
	}
	soon, cancel := context.WithTimeout(ctx, secondTime)
	defer cancel()
	second, err := pool.Conn(soon)
	if err != nil {
		return ctx.Err()
	}
	defer func() { _ = second.Close() }()
	if has, err := s.hasTable(ctx, first); err != nil || !has {
		return err
	}
	if has, err := s.hasTable(ctx, second); err != nil || has {
		return err
	}
	return errOwnMemory
}

func (s *Store) hasTable(ctx context.Context, conn *sql.Conn) (bool, error) {
	var n int
	err := conn.QueryRowContext(ctx, "SELECT COUNT(*) FROM sqlite_master WHERE type = 'table' AND lower(name) = lower(?)", s.table.Name).Scan(&n)
	return n > 0, err
}
