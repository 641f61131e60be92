package pgnotify

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/outboxkit/outbox-go/outbox"
)

// New makes a notifier that listens on a connection with the address and settings of db, a pool of
// pgx's package stdlib, which sqltx may follow. The listening connection does not belong to the
// pool. Each time the notifier opens this connection, it uses a connection of the pool for a
// moment, to read the address and the settings. The pool's OptionBeforeConnect does not see the
// listening connection, so where credentials change use [FromPool]. For a pool of another driver,
// or a pool within another wrapper, use [FromDSN].
func New(db *sql.DB) (*Notifier, error) {
	if db == nil {
		return nil, &outbox.FieldError{Field: "pgnotify.New db", Problem: "is nil"}
	}
	if _, ok := db.Driver().(*stdlib.Driver); !ok {
		return nil, &outbox.FieldError{Field: "pgnotify.New db", Problem: fmt.Sprintf("has the driver %T, which is not pgx's package stdlib; use pgnotify.FromDSN, or package pqnotify with lib/pq", db.Driver())}
	}
	return &Notifier{connect: func(ctx context.Context) (*pgx.Conn, error) {
		config, err := configOf(ctx, db)
		if err != nil {
			return nil, err
		}
		return pgx.ConnectConfig(ctx, config)
	}}, nil
}

// configOf returns the configuration of the pool's connections.
func configOf(ctx context.Context, db *sql.DB) (config *pgx.ConnConfig, err error) {
	held, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = held.Close() }()
	err = held.Raw(func(conn any) error {
		if followed, ok := conn.(interface{ Unwrap() driver.Conn }); ok { // by sqltx
			conn = followed.Unwrap()
		}
		own, ok := conn.(*stdlib.Conn)
		if !ok {
			return fmt.Errorf("the pool's connection is a %T, not pgx's; use pgnotify.FromDSN", conn)
		}
		config = own.Conn().Config()
		return nil
	})
	return config, err
}

// FromPool makes a notifier that takes a connection out of the pool for good each time it begins to
// listen. The pool may open another connection in its place.
func FromPool(pool *pgxpool.Pool) (*Notifier, error) {
	if pool == nil {
		return nil, &outbox.FieldError{Field: "pgnotify.FromPool pool", Problem: "is nil"}
	}
	return &Notifier{connect: func(ctx context.Context) (*pgx.Conn, error) {
		conn, err := pool.Acquire(ctx)
		if err != nil {
			return nil, err
		}
		return conn.Hijack(), nil
	}}, nil
}

// FromDSN makes a notifier that connects to a PostgreSQL URL or connection string, such as an
// address that leads past a transaction pooler. The database must be the outbox's.
func FromDSN(dsn string) (*Notifier, error) {
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, fmt.Errorf("pgnotify.FromDSN: %w", err)
	}
	return &Notifier{connect: func(ctx context.Context) (*pgx.Conn, error) {
		return pgx.ConnectConfig(ctx, config.Copy())
	}}, nil
}
