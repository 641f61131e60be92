package outboxfx_test

import (
	"context"
	"database/sql"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/fx"

	outboxfx "github.com/outboxkit/outbox-go/fxmodule"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// wire is a notifier within the process.
type wire struct {
	mu    sync.Mutex
	heard []chan struct{}
	pools []*sql.DB // that its constructor was given
}

func (w *wire) of(db *sql.DB) (*wire, error) {
	w.pools = append(w.pools, db)
	return w, nil
}

func (w *wire) Notify(context.Context, outbox.DB, string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, heard := range w.heard {
		select {
		case heard <- struct{}{}:
		default: // one waits already
		}
	}
	return nil
}

func (w *wire) Listen(ctx context.Context, _ outbox.DB, _ string, wake func()) error {
	heard := make(chan struct{}, 1)
	w.mu.Lock()
	w.heard = append(w.heard, heard)
	w.mu.Unlock()
	for {
		wake()
		select {
		case <-heard:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func TestANotifierWakesTheOutboxThatDelivers(t *testing.T) {
	t.Parallel()
	store, db, box, w := outboxtest.NewStore(), newPool(), newInbox(), &wire{}
	module := func(name string, cfg outboxfx.Config) fx.Option {
		return fx.Options(named(name, db), outboxfx.NewModule(outboxfx.Named(name), outboxfx.WithStore(store), outboxfx.WithConfig(cfg), outboxfx.WithNotifier(w.of)))
	}
	var writer struct {
		fx.In
		Writer *outbox.Writer `name:"writes"`
	}
	started(t,
		module("delivers", outboxfx.Config{Mode: outboxfx.MultiNode, Poll: outboxfx.PollConfig{Interval: time.Hour}}),
		module("writes", outboxfx.Config{Mode: outboxfx.WriterOnly}),
		box.listens(outboxfx.For("delivers")), fx.Populate(&writer))
	require.Equal(t, []*sql.DB{db, db}, w.pools)
	write(t, db, writer.Writer, placed("1"))
	box.awaits(t, "1")
	write(t, db, writer.Writer, placed("2"))
	box.awaits(t, "1", "2")
}

// A store that is the notifier serves the table of the configuration.
func TestAStoreIsTheNotifierOfAnyTable(t *testing.T) {
	t.Parallel()
	stores := map[testdb.Kind]func(...sqlstore.Option) *sqlstore.Store{testdb.Postgres: sqlstore.Postgres, testdb.MySQL: sqlstore.MySQL, testdb.SQLite: sqlstore.SQLite}
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		box := newInbox()
		module := func(name string, pool *sql.DB, cfg outboxfx.Config) fx.Option {
			cfg.Table = "Jobs"
			return fx.Options(named(name, pool), outboxfx.NewModule(outboxfx.Named(name), outboxfx.WithConfig(cfg), outboxfx.WithNotifier(stores[db.Kind]())))
		}
		var writer struct {
			fx.In
			Writer *outbox.Writer `name:"writes"`
		}
		started(t,
			module("delivers", db.DB, outboxfx.Config{Mode: outboxfx.MultiNode, CreateSchema: true, Poll: outboxfx.PollConfig{Interval: time.Hour}}),
			module("writes", db.Reopen(t).DB, outboxfx.Config{Mode: outboxfx.WriterOnly}),
			box.listens(outboxfx.For("delivers")), fx.Populate(&writer))
		ids := []string{"1", "2", "3"}
		for i, id := range ids { // the first may come while the poller starts
			_, err := writer.Writer.WriteUnmanaged(t.Context(), db, []outbox.Envelope{placed(id)})
			require.NoError(t, err)
			box.awaits(t, ids[:i+1]...)
		}
	})
}
