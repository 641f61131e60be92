package outboxfx_test

import (
	"context"
	"database/sql"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/fx"

	outboxfx "github.com/outboxkit/outbox-go/fxmodule"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

func TestStopDrainsBeforeTheDatabaseAndTheServicesClose(t *testing.T) {
	t.Parallel()
	db, store, d := newPool(), outboxtest.NewStore(), newInbox()
	entered, leave := make(chan struct{}), make(chan struct{})
	type mailer struct{}
	var w *outbox.Writer
	app := fx.New(
		fx.NopLogger,
		// The order of the options does not matter.
		outboxfx.AsListener(func(*mailer) outbox.Listener {
			return outbox.ListenerFunc(func(context.Context, outbox.Envelope) error {
				close(entered)
				<-leave
				d.note("delivered")
				return nil
			})
		}, outboxfx.On("Order", "Placed")),
		outboxfx.NewModule(outboxfx.WithStore(store)),
		fx.Provide(func(lc fx.Lifecycle, _ *outbox.Writer) *mailer { // depends on the outbox
			lc.Append(fx.StopHook(func() { d.note("mailer closed") }))
			return &mailer{}
		}, func(lc fx.Lifecycle) *sql.DB {
			lc.Append(fx.StopHook(func() { d.note("database closed") }))
			return db
		}),
		fx.Populate(&w),
		fx.Invoke(func(lc fx.Lifecycle) { // as a server does
			lc.Append(fx.StartStopHook(func() { d.note("server started") }, func() { d.note("server stopped"); close(leave) }))
		}),
	)
	require.NoError(t, errors.Join(app.Err(), app.Start(t.Context())))
	write(t, db, w, placed("o-1"))
	<-entered
	require.NoError(t, app.Stop(t.Context()))
	require.Equal(t, []string{"server started", "server stopped", "delivered", "mailer closed", "database closed"}, d.notes())
	require.Equal(t, outbox.StatusDone, store.Rows()[0].Status, "what was drained is stored")
}

func TestTheStopTimeoutBoundsTheDrain(t *testing.T) {
	t.Parallel()
	db, store, entered := newPool(), outboxtest.NewStore(), make(chan struct{})
	var w *outbox.Writer
	app := fx.New(fx.NopLogger, fx.Supply(db), outboxfx.NewModule(outboxfx.WithStore(store)), fx.Populate(&w),
		fx.Replace(outboxfx.Config{Dispatch: outboxfx.DispatchConfig{DrainTimeout: time.Hour}}),
		outboxfx.AsListener(func() outbox.Listener {
			return outbox.ListenerFunc(func(ctx context.Context, _ outbox.Envelope) error {
				close(entered)
				<-ctx.Done()
				return ctx.Err()
			})
		}, outboxfx.On("Order", "Placed")))
	require.NoError(t, app.Start(t.Context()))
	write(t, db, w, placed("o-1"))
	<-entered
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	begun := time.Now()
	_ = app.Stop(ctx) // the outbox decides whether this is an error
	require.Less(t, time.Since(begun), 10*time.Second)
	require.Eventually(t, func() bool { return store.Rows()[0].Status == outbox.StatusNew }, 20*time.Second, 2*time.Millisecond)
	require.Zero(t, store.Rows()[0].Attempts, "an interrupted delivery is not a failed attempt")
}

// Only the start knows the listeners.
func TestRulesOfKindsWithoutAListenerAreNamedAtTheStart(t *testing.T) {
	t.Parallel()
	app := fx.New(fx.NopLogger, fx.Supply(newPool()), outboxfx.NewModule(inMemory()), newInbox().listens(),
		fx.Replace(outboxfx.Config{Kinds: []outboxfx.KindConfig{{EventType: "Paid", Rate: 1}, {EventType: "Sent", Rate: 1}}}))
	err := app.Start(t.Context())
	var key *outboxfx.KeyError
	require.ErrorAs(t, err, &key)
	require.Equal(t, "kinds[0]", key.Key)
	require.ErrorContains(t, err, "kinds[1] (Config.Kinds[1]) is for a kind for which no listener is registered")
}

// One after another the outboxes would take the sum of their drain timeouts, and
// nothing of the stop timeout would be left for the last ones.
func TestOutboxesDrainAtTheSameTime(t *testing.T) {
	t.Parallel()
	names := []string{"a", "b", "c", "d"}
	var entered, draining atomic.Int32
	all := make(chan struct{}) // closed when the listeners of every outbox have been cancelled
	writers, dbs := map[string]*outbox.Writer{}, map[string]*sql.DB{}
	opts := []fx.Option{fx.NopLogger, outboxfx.AsListener(func() outbox.Listener {
		return outbox.ListenerFunc(func(ctx context.Context, _ outbox.Envelope) error {
			entered.Add(1)
			<-ctx.Done()
			if draining.Add(1) == int32(len(names)) {
				close(all)
			}
			select {
			case <-all:
				return ctx.Err()
			case <-time.After(20 * time.Second):
				return errors.New("the others do not stop")
			}
		})
	}, outboxfx.On("Order", "Placed"), outboxfx.For(names...))}
	cfg := outboxfx.Config{Dispatch: outboxfx.DispatchConfig{DrainTimeout: 50 * time.Millisecond}}
	for _, name := range names {
		dbs[name] = newPool()
		opts = append(opts, named(name, dbs[name]), outboxfx.NewModule(outboxfx.Named(name), inMemory(), outboxfx.WithConfig(cfg)),
			fx.Invoke(fx.Annotate(func(w *outbox.Writer) { writers[name] = w }, fx.ParamTags(`name:"`+name+`"`))))
	}
	app := fx.New(opts...)
	require.NoError(t, errors.Join(app.Err(), app.Start(t.Context())))
	for _, name := range names {
		write(t, dbs[name], writers[name], placed("o-1"))
	}
	require.Eventually(t, func() bool { return entered.Load() == int32(len(names)) }, 20*time.Second, 2*time.Millisecond)
	require.NoError(t, app.Stop(t.Context()))
	require.EqualValues(t, len(names), draining.Load())
}

// closeNoter is metrics that note when the outbox closes them.
type closeNoter struct {
	outbox.NopMetrics
	d *inbox
}

func (n closeNoter) Close() error { n.d.note("outbox closed"); return nil }

// The last outbox of the options stops no earlier than what is between it and the
// first: a server keeps the hot path.
func TestOutboxesDrainAfterWhatIsBetweenThem(t *testing.T) {
	t.Parallel()
	d := newInbox()
	metrics := outboxfx.WithMetrics(closeNoter{d: d})
	stops := func(what string) func(fx.Lifecycle) *sql.DB {
		return func(lc fx.Lifecycle) *sql.DB {
			lc.Append(fx.StopHook(func() { d.note(what) }))
			return newPool()
		}
	}
	app := fx.New(fx.NopLogger,
		fx.Provide(fx.Annotated{Name: "a", Target: stops("database closed")}, fx.Annotated{Name: "b", Target: stops("database closed")}),
		outboxfx.NewModule(outboxfx.Named("a"), inMemory(), metrics),
		fx.Module("web", fx.Invoke(func(lc fx.Lifecycle) { lc.Append(fx.StopHook(func() { d.note("server stopped") })) })),
		outboxfx.NewModule(outboxfx.Named("b"), inMemory(), metrics))
	require.NoError(t, errors.Join(app.Err(), app.Start(t.Context()), app.Stop(t.Context())))
	require.Equal(t, []string{"server stopped", "outbox closed", "outbox closed", "database closed", "database closed"}, d.notes())
}

func TestNothingRunsOnTheStartContext(t *testing.T) {
	t.Parallel()
	db, box := newPool(), newInbox()
	var w *outbox.Writer
	app := fx.New(fx.NopLogger, fx.Supply(db), outboxfx.NewModule(inMemory()), fx.Populate(&w), box.listens())
	ctx, cancel := context.WithCancel(t.Context())
	require.NoError(t, app.Start(ctx))
	cancel()
	write(t, db, w, placed("o-1"))
	delayed := placed("o-2")
	delayed.DeliverAfter = 30 * time.Millisecond // for the poller
	write(t, db, w, delayed)
	box.awaits(t, "o-1", "o-2")
	require.NoError(t, app.Stop(t.Context()))
	require.ErrorIs(t, app.Start(t.Context()), outbox.ErrClosed)
}

func TestAStartThatFailsElsewhereClosesTheOutbox(t *testing.T) {
	t.Parallel()
	var o *outbox.Outbox
	app := fx.New(fx.NopLogger, fx.Supply(newPool()), outboxfx.NewModule(inMemory()), fx.Populate(&o),
		fx.Invoke(func(lc fx.Lifecycle) { lc.Append(fx.StartHook(func() error { return errors.New("port in use") })) }))
	require.ErrorContains(t, app.Start(t.Context()), "port in use")
	require.ErrorIs(t, o.Start(t.Context()), outbox.ErrClosed)
}

// schemaStore is a store in memory that counts how often its table is created.
type schemaStore struct {
	*outboxtest.Store
	created int
	err     error
}

func (s *schemaStore) CreateSchema(context.Context, outbox.DB) error { s.created++; return s.err }

func TestAStartThatFailsInAnOutboxClosesAll(t *testing.T) {
	t.Parallel()
	metrics := &counts{}
	var o struct {
		fx.In
		Plain  *outbox.Outbox
		Orders *outbox.Outbox `name:"orders"`
	}
	app := fx.New(fx.NopLogger, fx.Supply(newPool()), named("orders", newPool()), fx.Populate(&o), outboxfx.NewModule(inMemory()), outboxfx.NewModule(
		outboxfx.Named("orders"), outboxfx.WithConfig(outboxfx.Config{CreateSchema: true}), outboxfx.WithMetrics(metrics),
		outboxfx.WithStore(&schemaStore{Store: outboxtest.NewStore(), err: errors.New("access denied")})))
	require.NoError(t, app.Err())
	require.ErrorContains(t, app.Start(t.Context()), `outboxfx: starting the outbox "orders": creating the table: access denied`)
	require.ErrorIs(t, o.Plain.Start(t.Context()), outbox.ErrClosed)
	require.ErrorIs(t, o.Orders.Start(t.Context()), outbox.ErrClosed)
	require.EqualValues(t, 1, metrics.closed.Load())

	// A start context that has ended starts nothing; goleak would see it.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Error(t, fx.New(fx.NopLogger, fx.Supply(newPool()), outboxfx.NewModule(inMemory())).Start(ctx))
}

func TestTheTableIsCreatedOnlyWhenAsked(t *testing.T) {
	t.Parallel()
	for created, create := range []bool{false, true} {
		store := &schemaStore{Store: outboxtest.NewStore()}
		app := fx.New(fx.NopLogger, fx.Supply(newPool()), fx.Replace(outboxfx.Config{CreateSchema: create}), outboxfx.NewModule(outboxfx.WithStore(store)))
		require.NoError(t, errors.Join(app.Start(t.Context()), app.Stop(t.Context())))
		require.Equal(t, created, store.created)
	}
}

func TestEveryDatabaseIsDetectedAndGivenItsTable(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		var o *outbox.Outbox
		on := true
		started(t, fx.Supply(db.DB), outboxfx.Module, fx.Populate(&o), newInbox().listens(),
			fx.Replace(outboxfx.Config{Mode: outboxfx.MultiNode, Table: "shop_events", CreateSchema: true, Purge: outboxfx.PurgeConfig{Enabled: &on}}))
		_, err := o.Stats(t.Context())
		require.NoError(t, err)
		var rows int
		require.NoError(t, db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM shop_events").Scan(&rows))
	})
}

// With tenants-in-turn, create-schema creates the tenant index, without which the outbox
// does not start.
func TestTenantsInTurnGetTheirIndex(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		started(t, fx.Supply(db.DB), outboxfx.Module, newInbox().listens(), fx.Replace(outboxfx.Config{
			Mode: outboxfx.MultiNode, CreateSchema: true, Claim: outboxfx.ClaimConfig{TenantsInTurn: true},
		}), fx.Invoke(func(*outbox.Outbox) {}))
	})
}

// With unique-keys, create-schema adds the column and the index, without which the outbox does not
// start.
func TestUniqueKeysGetTheirIndex(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		var w *outbox.Writer
		started(t, fx.Supply(db.DB), outboxfx.Module, newInbox().listens(), fx.Replace(outboxfx.Config{UniqueKeys: true, CreateSchema: true}), fx.Populate(&w))
		for _, id := range []string{"a", "skipped"} {
			tx, err := db.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			ids, err := w.WriteUnmanaged(t.Context(), tx, []outbox.Envelope{{
				EventID: id, EventType: "Said", Payload: outbox.JSON(1), UniqueKey: "k", DeliverAfter: time.Hour,
			}})
			require.NoError(t, err)
			require.Equal(t, []string{"a"}, ids)
			require.NoError(t, tx.Commit())
		}
	})
}

// In the mode ordered-by-key, create-schema creates the key index, without which the
// outbox does not start.
func TestOrderedByKeyGetsItsIndex(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		started(t, fx.Supply(db.DB), outboxfx.Module, newInbox().listens(), fx.Replace(outboxfx.Config{
			Mode: outboxfx.OrderedByKey, CreateSchema: true, Ordering: outboxfx.OrderingConfig{OnDead: outboxfx.SkipDead, RequireKey: true},
		}), fx.Invoke(func(*outbox.Outbox) {}))
	})
}
