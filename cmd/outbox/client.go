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
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outboxkit/outbox-go/cmd/outbox/internal/catalog"
	"github.com/outboxkit/outbox-go/internal/sqlerr"
	"github.com/outboxkit/outbox-go/internal/sqlname"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// client is an open database, and an outbox on it that is never started.
type client struct {
	db    *sql.DB
	store *sqlstore.Store
	ob    *outbox.Outbox
	// ahead is by how much the database's clock is ahead of this machine's.
	ahead time.Duration
}

// now is the time by the database's clock, which the processes that deliver follow too.
func (c *client) now() time.Time { return time.Now().Add(c.ahead) }

// open connects to the database. It creates a missing file of SQLite only if create is set.
func (a *app) open(ctx context.Context, create bool) (*client, error) {
	if a.dsn == "" {
		a.dsn = os.Getenv(dsnVar)
	}
	addr, err := parseAddress(a.dsn)
	if err != nil {
		return nil, err
	}
	db, err := addr.open(create)
	if err != nil {
		return nil, fmt.Errorf("connecting to the database: %w", err)
	}
	c := &client{db: db}
	if err = c.ping(ctx, addr.timeout); err == nil {
		err = c.connect(ctx, a.table)
	}
	if err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// ping waits for the first answer of the server.
func (c *client) ping(ctx context.Context, timeout time.Duration) error {
	limited := ctx
	if timeout > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	err := c.db.PingContext(limited)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("the server did not answer within %s", timeout)
	}
	if err != nil {
		return connectError(err)
	}
	return nil
}

func (c *client) connect(ctx context.Context, table string) (err error) {
	c.store, err = sqlstore.Detect(ctx, c.db, sqlstore.WithTable(table))
	if c.store != nil && err != nil {
		return tableError(err)
	}
	if err != nil {
		return connectError(err)
	}
	now, err := c.store.Now(ctx, c.db)
	if err != nil {
		return connectError(err)
	}
	c.ahead = time.Until(now)
	name, err := sqlname.Parse(table)
	if err != nil {
		return err
	}
	indexes, err := catalog.Names(ctx, c.db, c.store.Dialect(), name)
	if err != nil {
		return fmt.Errorf("reading the indexes of the table: %w", err)
	}
	if catalog.Has(indexes, name.Index("search")) {
		if c.store, err = sqlstore.Detect(ctx, c.db, sqlstore.WithTable(table), sqlstore.WithSearchIndex()); err != nil {
			return err
		}
	}
	cfg := outbox.Config{DB: c.db, Store: c.store, Logger: slog.New(slog.DiscardHandler), Clock: outbox.ClockFunc(c.now)}
	// OrderedByKey does not start without the key index. The mode requires replayed events to be
	// RETRY, which other modes take as well as NEW.
	if catalog.Has(indexes, name.Index("key")) {
		cfg.Mode = outbox.OrderedByKey{}
	}
	c.ob, err = outbox.New(cfg)
	return err
}

// Result codes of SQLite.
const (
	sqliteBusy         = 5
	sqliteNotADatabase = 26
)

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
	case sqlerr.HasCode(err, sqliteBusy):
		return errors.New("the file of SQLite is locked: try again when the process that writes to it has ended its transaction")
	case sqlerr.HasCode(err, sqliteNotADatabase):
		return errors.New("the file is no database of SQLite: correct the path")
	case sqlerr.HasState(err, "42704"), sqlerr.HasState(err, "22023"): // the message may have a word of the password
		return errors.New("no connection to the database: the server refuses a parameter of the address; a password with a blank needs single quotes in host=… password='…', and percent-encoding in a URL")
	case strings.Contains(text, "unexpected message"), strings.Contains(text, "body must have length"):
		text = "the server does not answer as PostgreSQL does"
	case errors.As(err, &refused):
		text = fmt.Sprintf("%s (SQLSTATE %s)", refused.Message, refused.Code)
	case errors.As(err, &host):
		text = "the name of the host is unknown: " + host.Err
	case errors.As(err, &network):
		text = network.Error()
	}
	return fmt.Errorf("no connection to the database: %s; check the host, the port, the user, the password and the database in the address", text)
}

// hasTable reports whether the table exists.
func (c *client) hasTable(ctx context.Context, name sqlname.Name) (bool, error) {
	quote := `"`
	if c.store.Dialect() == "mysql" {
		quote = "`"
	}
	n := 0
	err := c.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM "+name.Quoted(quote)+" WHERE 1 = 0").Scan(&n)
	return err == nil, err
}

// isSchemaMissing reports whether the schema in a table's name does not exist.
func (c *client) isSchemaMissing(ctx context.Context, schema string) (bool, error) {
	query := "SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name = "
	switch c.store.Dialect() {
	case "postgres":
		query = "SELECT COUNT(to_regnamespace(quote_ident($1)))"
	case "mysql":
		query += "?"
	default: // SQLite's schemas are attached files
		return false, nil
	}
	if schema == "" {
		return false, nil
	}
	n := 0
	err := c.db.QueryRowContext(ctx, query, schema).Scan(&n)
	return n == 0, err
}

func (c *client) close() { _ = c.db.Close() }
