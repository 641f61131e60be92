package pgnotify

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outboxkit/outbox-go/internal/pgchannel"
	"github.com/outboxkit/outbox-go/outbox"
)

// Limits of the listening connection.
const (
	openTimeout = 10 * time.Second // to connect and to begin to listen
	idleTime    = time.Minute      // without a notification, until the connection is tested
	pingTimeout = 10 * time.Second
	endTimeout  = time.Second
)

// Notifier sends and receives notifications on PostgreSQL. It implements [outbox.Notifier]. Make a
// Notifier with [New], [FromPool] or [FromDSN].
type Notifier struct {
	connect func(ctx context.Context) (*pgx.Conn, error)
}

var _ outbox.Notifier = (*Notifier)(nil)

// Dialect returns "postgres": [outbox.New] refuses a store of another dialect.
func (n *Notifier) Dialect() string { return pgchannel.Dialect }

// Notify implements [outbox.Notifier]. Notify uses a connection of db.
func (n *Notifier) Notify(ctx context.Context, db outbox.DB, table string) error {
	if err := pgchannel.Notify(ctx, db, table); err != nil {
		return fmt.Errorf("pgnotify: %w", err)
	}
	return nil
}

// Listen implements [outbox.Notifier]. Listen uses a separate connection. A connection without
// notifications is tested once a minute.
func (n *Notifier) Listen(ctx context.Context, _ outbox.DB, table string, wake func()) error {
	conn, err := n.open(ctx, table)
	if err != nil {
		return fmt.Errorf("pgnotify: %w", err)
	}
	defer end(conn)
	for {
		wake()
		if err := wait(ctx, conn); err != nil {
			return fmt.Errorf("pgnotify: listening for table %s: %w", table, err)
		}
	}
}

// open makes a connection that listens.
func (n *Notifier) open(ctx context.Context, table string) (*pgx.Conn, error) {
	if n.connect == nil {
		return nil, errors.New("the Notifier is empty; make one with New, FromPool or FromDSN")
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	conn, err := n.connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("connecting to listen for table %s: %w", table, err)
	}
	if _, err := conn.Exec(ctx, "LISTEN "+pgchannel.Quoted(table)); err != nil {
		end(conn)
		return nil, fmt.Errorf("listening for table %s: %w", table, err)
	}
	return conn, nil
}

// wait waits for a notification.
func wait(ctx context.Context, conn *pgx.Conn) error {
	for {
		idle, cancel := context.WithTimeout(ctx, idleTime)
		_, err := conn.WaitForNotification(idle)
		cancel()
		if err == nil || ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		ping, cancel := context.WithTimeout(ctx, pingTimeout)
		err = conn.Ping(ping)
		cancel()
		if err != nil {
			return err
		}
	}
}

func end(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	_ = conn.Close(ctx)
}
