package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outboxkit/outbox-go/cmd/outbox/internal/catalog"
	"github.com/outboxkit/outbox-go/internal/sqlname"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// client is an open database, and an outbox on it that is never started.
type client struct {
	db    *sql.DB
	store *sqlstore.Store
	ob    *outbox.Outbox
}

// open connects to the database. It creates a missing file of SQLite only if create is
// set.
func (a *app) open(ctx context.Context, create bool) (*client, error) {
	if a.dsn == "" {
		a.dsn = os.Getenv(dsnVar)
	}
	addr, err := parseAddress(a.dsn)
	if err != nil {
		return nil, err
	}
	db, err := addr(create)
	if err != nil {
		return nil, fmt.Errorf("connecting to the database: %w", err)
	}
	c := &client{db: db}
	if err := c.connect(ctx, a.table); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

func (c *client) connect(ctx context.Context, table string) (err error) {
	if err := c.db.PingContext(ctx); err != nil {
		return connectError(err)
	}
	c.store, err = sqlstore.Detect(ctx, c.db, sqlstore.WithTable(table))
	if c.store != nil && err != nil {
		return tableError(err)
	}
	if err != nil {
		return fmt.Errorf("connecting: %w", err)
	}
	name, err := sqlname.Parse(table)
	if err != nil {
		return err
	}
	indexes, err := catalog.Indexes(ctx, c.db, c.store.Dialect(), name)
	if err != nil {
		return fmt.Errorf("reading the indexes of the table: %w", err)
	}
	if catalog.Has(indexes, name.Index("search")) {
		if c.store, err = sqlstore.Detect(ctx, c.db, sqlstore.WithTable(table), sqlstore.WithSearchIndex()); err != nil {
			return err
		}
	}
	cfg := outbox.Config{DB: c.db, Store: c.store, Logger: slog.New(slog.DiscardHandler)}
	// OrderedByKey does not start without its index. It wants replayed events to be RETRY,
	// which other modes take as well as NEW.
	if catalog.Has(indexes, name.Index("key")) {
		cfg.Mode = outbox.OrderedByKey{}
	}
	c.ob, err = outbox.New(cfg)
	return err
}

// connectError says why there is no connection. The drivers' texts repeat themselves, once
// for each address that they tried.
func connectError(err error) error {
	var refused *pgconn.PgError
	var host *net.DNSError
	var network *net.OpError
	text := err.Error()
	text = strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:])
	switch {
	case errors.Is(err, context.Canceled):
		return errInterrupted
	case strings.Contains(text, "unable to open database file"):
		return errors.New("the file of SQLite does not exist, or cannot be opened: correct the path, or create the file with outbox schema create")
	case errors.As(err, &refused):
		text = fmt.Sprintf("%s (SQLSTATE %s)", refused.Message, refused.Code)
	case errors.As(err, &host):
		text = "the name of the host is unknown: " + host.Err
	case errors.As(err, &network):
		text = network.Error()
	}
	return fmt.Errorf("no connection to the database: %s; check the host, the port, the user, the password and the database in the address", text)
}

func (c *client) close() { _ = c.db.Close() }
