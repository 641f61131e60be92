package pqnotify

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lib/pq"

	"github.com/outboxkit/outbox-go/internal/pgchannel"
	"github.com/outboxkit/outbox-go/internal/sqlerr"
	"github.com/outboxkit/outbox-go/outbox"
)

// Limits of the listening connection.
const (
	openTimeout = 10 * time.Second // to connect and to begin to listen
	idleTime    = time.Minute      // without a notification, until the connection is tested
	pingTimeout = 10 * time.Second
	reconnect   = time.Millisecond // lib/pq's pause, during which the listener is closed
)

// Notifier sends and receives notifications on PostgreSQL. It implements [outbox.Notifier]. Make a
// Notifier with [New].
type Notifier struct{ dsn string }

var _ outbox.Notifier = (*Notifier)(nil)

// New makes a notifier that listens on connections to a PostgreSQL URL or
// connection string of lib/pq. The database must be the outbox's; the outbox's own
// pool may be of another driver.
func New(dsn string) (*Notifier, error) {
	if dsn == "" {
		return nil, &outbox.FieldError{Field: "pqnotify.New dsn", Problem: "is empty"}
	}
	if _, err := pq.NewConnector(dsn); err != nil {
		return nil, fmt.Errorf("pqnotify.New: %w", sqlerr.WithoutAddress(err, dsn))
	}
	return &Notifier{dsn}, nil
}

// Dialect returns "postgres": [outbox.New] refuses a store of another dialect.
func (n *Notifier) Dialect() string { return pgchannel.Dialect }

// Notify implements [outbox.Notifier]. Notify uses a connection of db.
func (n *Notifier) Notify(ctx context.Context, db outbox.DB, table string) error {
	if err := pgchannel.Notify(ctx, db, table); err != nil {
		return fmt.Errorf("pqnotify: %w", err)
	}
	return nil
}

// Listen implements [outbox.Notifier]. Listen uses a separate connection. A connection without
// notifications is tested once a minute.
func (n *Notifier) Listen(ctx context.Context, _ outbox.DB, table string, wake func()) error {
	if n.dsn == "" {
		return errors.New("pqnotify: the Notifier is empty; make one with New")
	}
	s := newSession(ctx, n.dsn)
	defer s.end()
	if err := s.within(openTimeout, func() error { return s.listener.Listen(pgchannel.Name(table)) }); err != nil {
		return fmt.Errorf("pqnotify: listening for table %s: %w", table, err)
	}
	for {
		wake()
		if err := s.wait(); err != nil {
			return fmt.Errorf("pqnotify: listening for table %s: %w", table, err)
		}
	}
}
