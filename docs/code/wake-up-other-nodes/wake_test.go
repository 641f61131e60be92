// Package wake_test holds the Go code of docs/how-to/wake-up-other-nodes.md.
package wake_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/fx"

	"github.com/outboxkit/outbox-go/adapters/pgnotify"
	"github.com/outboxkit/outbox-go/adapters/pqnotify"
	outboxfx "github.com/outboxkit/outbox-go/fxmodule"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// newOutbox is for a pool of pgx's package stdlib.
func newOutbox(db *sql.DB) (*outbox.Outbox, error) {
	notifier, err := pgnotify.New(db)
	if err != nil {
		return nil, err
	}
	return outbox.New(outbox.Config{
		DB: db, Store: sqlstore.Postgres(), Mode: outbox.MultiNode{},
		Notifier: notifier,
	})
}

// newOutboxOnMySQL is for a database without notifications.
func newOutboxOnMySQL(db *sql.DB) (*outbox.Outbox, error) {
	store := sqlstore.MySQL()
	return outbox.New(outbox.Config{
		DB: db, Store: store, Mode: outbox.MultiNode{},
		Notifier: store,
	})
}

type settings struct{ DSN string }

func Example_fx() {
	fx.New(
		fx.Provide(open),
		outboxfx.NewModule(outboxfx.WithNotifier(pgnotify.New)), // which takes the *sql.DB
	).Run()
}

func Example_fxOnMySQL() {
	fx.New(
		fx.Provide(open),
		outboxfx.NewModule(outboxfx.WithNotifier(sqlstore.MySQL())), // or SQLite()
	).Run()
}

func Example_fxWithAddress() {
	fx.New(
		fx.Provide(open),
		outboxfx.NewModule(outboxfx.WithNotifier(func(s settings) (*pqnotify.Notifier, error) {
			return pqnotify.New(s.DSN)
		})),
	).Run()
}

func open() (*sql.DB, settings) { return new(sql.DB), settings{} }

// bus is a client of a message bus.
type bus interface {
	Publish(ctx context.Context, topic string) error
	// Subscribe calls fn when it has subscribed, and then for each message, until ctx
	// ends or the connection is lost.
	Subscribe(ctx context.Context, topic string, fn func()) error
}

// busNotifier wakes the other processes through a message bus, such as Redis or NATS.
type busNotifier struct{ bus bus }

func (n busNotifier) Notify(ctx context.Context, _ outbox.DB, table string) error {
	return n.bus.Publish(ctx, "outbox."+table)
}

func (n busNotifier) Listen(ctx context.Context, _ outbox.DB, table string, wake func()) error {
	return n.bus.Subscribe(ctx, "outbox."+table, wake)
}

// memory is a bus for one process.
type memory chan struct{}

func (m memory) Publish(context.Context, string) error {
	m <- struct{}{}
	return nil
}

func (m memory) Subscribe(ctx context.Context, _ string, fn func()) error {
	fn()
	for {
		select {
		case <-m:
			fn()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// A transaction of a process that only writes wakes the poller of one that delivers.
func TestANotifierOfYourOwnWakesThePoller(t *testing.T) {
	t.Parallel()
	store := outboxtest.NewStore()
	notifier := busNotifier{make(memory, 100)}
	writer, err := outbox.New(outbox.Config{DB: store.DB(), Store: store, Mode: outbox.WriterOnly{}, Notifier: notifier})
	require.NoError(t, err)
	require.NoError(t, writer.Start(t.Context()))
	delivered := make(chan string, 1)
	worker, err := outbox.New(outbox.Config{
		DB: store.DB(), Store: store, Notifier: notifier,
		Mode: outbox.MultiNode{Poll: outbox.PollOptions{Interval: time.Hour}},
	})
	require.NoError(t, err)
	require.NoError(t, worker.Register(outbox.On("Order", "OrderPlaced", outbox.ListenerFunc(func(_ context.Context, env outbox.Envelope) error {
		delivered <- env.AggregateID
		return nil
	}))))
	require.NoError(t, worker.Start(t.Context()))
	require.NoError(t, outbox.InTx(t.Context(), outboxtest.NewTransactor(store.DB()), func(ctx context.Context) error {
		_, err := writer.Writer().Write(ctx, outbox.Envelope{EventType: "OrderPlaced", AggregateType: "Order", AggregateID: "o-1", Payload: outbox.JSON(1)})
		return err
	}))
	select {
	case id := <-delivered:
		require.Equal(t, "o-1", id)
	case <-time.After(20 * time.Second):
		t.Fatal("the poller of the other process did not wake")
	}
	require.NoError(t, worker.Close(context.Background()))
	require.NoError(t, writer.Close(context.Background()))
}

func Example_constructors() {
	db, _ := open()
	for _, make := range []func(*sql.DB) (*outbox.Outbox, error){newOutbox, newOutboxOnMySQL} {
		if _, err := make(db); err != nil {
			panic(err)
		}
	}
}
