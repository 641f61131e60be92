package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Error codes of PostgreSQL.
const (
	undefinedObject = "42704"
	duplicateObject = "42710"
)

// CreateSlot creates the publication, unless it exists, and the slot. Call CreateSlot once, before
// the first event is written: the slot begins at the current position of the log. If the slot
// exists, CreateSlot returns an error.
func (r *Reader) CreateSlot(ctx context.Context) error {
	conn, err := r.connect(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	name := pgx.Identifier{r.Slot}.Sanitize()
	_, err = conn.Exec(ctx, "CREATE PUBLICATION "+name+" FOR TABLE "+pgx.Identifier(strings.Split(r.Table, ".")).Sanitize()+" WITH (publish = 'insert')").ReadAll()
	if e, _ := errors.AsType[*pgconn.PgError](err); err != nil && (e == nil || e.Code != duplicateObject) {
		return fmt.Errorf("cdc: creating publication %q: %w", r.Slot, err)
	}
	if _, err := conn.Exec(ctx, "CREATE_REPLICATION_SLOT "+name+" LOGICAL pgoutput").ReadAll(); err != nil {
		return fmt.Errorf("cdc: creating slot %q: %w", r.Slot, err)
	}
	return nil
}

// connect opens a connection for replication.
func (r *Reader) connect(ctx context.Context) (*pgconn.PgConn, error) {
	cfg, err := pgconn.ParseConfig(r.DSN)
	if err != nil {
		return nil, errors.New("cdc: the address of the database is invalid") // err may quote it
	}
	cfg.RuntimeParams["replication"] = "database"
	cfg.RuntimeParams["datestyle"], cfg.RuntimeParams["timezone"] = "ISO", "UTC"
	conn, err := pgconn.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("cdc: connecting: %w", err)
	}
	return conn, nil
}
