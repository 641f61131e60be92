package outboxfx_test

import (
	"context"
	"database/sql"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/fx"
	"go.uber.org/fx/fxevent"
	"go.uber.org/fx/fxtest"

	"github.com/outboxkit/outbox-go/internal/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// openSQLite is a pool on a SQLite file of the test's own, with the table.
func openSQLite(t *testing.T) *sql.DB {
	t.Helper()
	for _, target := range adaptertest.Main() {
		if target.Kind == testdb.SQLite {
			db := testdb.Open(t, target).DB
			require.NoError(t, sqlstore.SQLite().CreateSchema(t.Context(), db))
			return db
		}
	}
	t.Fatal("testdb has no SQLite")
	return nil
}

// named is a pool as a named data source.
func named(name string, db *sql.DB) fx.Option {
	return fx.Supply(fx.Annotate(db, fx.ResultTags(`name:"`+name+`"`)))
}

// inbox is a listener that keeps what it gets.
type inbox struct {
	mu   sync.Mutex
	envs []outbox.Envelope
}

func newInbox() *inbox { return &inbox{} }

func (i *inbox) OnEvent(_ context.Context, env outbox.Envelope) (outbox.Result, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.envs = append(i.envs, env)
	return outbox.Done(), nil
}

func (i *inbox) ids() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	ids := []string{}
	for _, env := range i.envs {
		ids = append(ids, env.AggregateID)
	}
	return ids
}

// awaits waits until the inbox holds the events of these aggregates.
func (i *inbox) awaits(t *testing.T, ids ...string) {
	t.Helper()
	require.EventuallyWithT(t, func(c *assert.CollectT) { require.ElementsMatch(c, ids, i.ids()) }, 20*time.Second, 2*time.Millisecond)
}

func placed(id string) outbox.Envelope {
	return outbox.Envelope{EventType: "Placed", AggregateType: "Order", AggregateID: id, Payload: outbox.RawJSON(`{}`)}
}

// write writes an event in a transaction of its own.
func write(t *testing.T, db *sql.DB, w *outbox.Writer, env outbox.Envelope) {
	t.Helper()
	require.NoError(t, outbox.InTx(t.Context(), adaptertest.Adapter(t, db, w), func(ctx context.Context) error {
		_, err := w.Write(ctx, env)
		return err
	}))
}

// started starts an app and stops it with the test.
func started(t *testing.T, opts ...fx.Option) *fxtest.App {
	t.Helper()
	app := fxtest.New(t, append(opts, fx.NopLogger)...)
	app.RequireStart()
	t.Cleanup(func() { app.RequireStop() })
	return app
}

// newError is what fx.New says.
func newError(opts ...fx.Option) error { return fx.New(append(opts, fx.NopLogger)...).Err() }

// quiet is fx.NopLogger for where a cycle keeps that from being made.
func quiet() fxevent.Logger { return fxevent.NopLogger }
