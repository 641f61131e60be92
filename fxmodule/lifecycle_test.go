package outboxfx_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/fx"

	outboxfx "github.com/outboxkit/outbox-go/fxmodule"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// diary notes in which order things happen.
type diary struct {
	mu    sync.Mutex
	notes []string
}

func (d *diary) note(what string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.notes = append(d.notes, what)
}

func TestStopDrainsBeforeTheDatabaseAndTheServicesClose(t *testing.T) {
	t.Parallel()
	db, d := openSQLite(t), &diary{}
	entered, leave := make(chan struct{}), make(chan struct{})
	type mailer struct{}
	var w *outbox.Writer
	app := fx.New(
		fx.NopLogger,
		// The order of the options does not matter.
		outboxfx.AsListener(func(*mailer) outbox.Listener {
			return outbox.Handle(func(context.Context, outbox.Envelope) error {
				close(entered)
				<-leave
				d.note("delivered")
				return db.PingContext(context.Background())
			})
		}, outboxfx.On("Order", "Placed")),
		outboxfx.Module,
		fx.Provide(func(lc fx.Lifecycle, _ *outbox.Writer) *mailer { // depends on the outbox
			lc.Append(fx.StopHook(func() { d.note("mailer closed") }))
			return &mailer{}
		}),
		fx.Provide(func(lc fx.Lifecycle) *sql.DB {
			lc.Append(fx.StopHook(func() error { d.note("database closed"); return db.Close() }))
			return db
		}),
		fx.Populate(&w),
		fx.Invoke(func(lc fx.Lifecycle) { // as a server does
			lc.Append(fx.StartStopHook(func() { d.note("server started") }, func() { d.note("server stopped"); close(leave) }))
		}),
	)
	require.NoError(t, app.Err())
	require.NoError(t, app.Start(t.Context()))
	write(t, db, w, placed("o-1"))
	<-entered
	require.NoError(t, app.Stop(t.Context()))
	require.Equal(t, []string{"server started", "server stopped", "delivered", "mailer closed", "database closed"}, d.notes)
}

func TestWhatWasDrainedIsStored(t *testing.T) {
	t.Parallel()
	db := openSQLite(t)
	entered, leave := make(chan struct{}), make(chan struct{})
	var w *outbox.Writer
	app := fx.New(fx.NopLogger, fx.Supply(db), outboxfx.Module, fx.Populate(&w),
		outboxfx.AsListener(func() outbox.Listener {
			return outbox.Handle(func(context.Context, outbox.Envelope) error { close(entered); <-leave; return nil })
		}, outboxfx.On("Order", "Placed")))
	require.NoError(t, app.Start(t.Context()))
	write(t, db, w, placed("o-1"))
	<-entered
	stopped := make(chan error, 1)
	go func() { stopped <- app.Stop(context.Background()) }()
	select {
	case err := <-stopped:
		t.Fatalf("stopped with a delivery under way: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	close(leave)
	require.NoError(t, <-stopped)
	var status int
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT status FROM outbox_event").Scan(&status))
	require.Equal(t, 1, status)
}

func TestTheStopTimeoutBoundsTheDrain(t *testing.T) {
	t.Parallel()
	db := openSQLite(t)
	entered := make(chan struct{})
	var w *outbox.Writer
	app := fx.New(fx.NopLogger, fx.Supply(db), outboxfx.Module, fx.Populate(&w),
		fx.Supply(outboxfx.Config{Dispatcher: outboxfx.DispatcherConfig{DrainTimeout: time.Hour}}),
		outboxfx.AsListener(func() outbox.Listener {
			return outbox.Handle(func(ctx context.Context, _ outbox.Envelope) error {
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
	_ = app.Stop(ctx) // whether it says that it was cut short is the outbox's to decide
	require.Less(t, time.Since(begun), 10*time.Second)
	var status, attempts int
	require.Eventually(t, func() bool {
		return db.QueryRowContext(t.Context(), "SELECT status, attempts FROM outbox_event").Scan(&status, &attempts) == nil && status == 0
	}, 20*time.Second, 2*time.Millisecond)
	require.Zero(t, attempts, "what was cut off is no failed attempt")
}

func TestNothingRunsOnTheStartContext(t *testing.T) {
	t.Parallel()
	db, box := openSQLite(t), newInbox()
	var w *outbox.Writer
	app := fx.New(fx.NopLogger, fx.Supply(db), outboxfx.Module, fx.Populate(&w),
		outboxfx.AsListener(func() *inbox { return box }, outboxfx.On("Order", "Placed")),
		fx.Supply(outboxfx.Config{CreateSchema: true, Poller: outboxfx.PollerConfig{Interval: 10 * time.Millisecond}}))
	ctx, cancel := context.WithCancel(t.Context())
	require.NoError(t, app.Start(ctx))
	cancel()
	write(t, db, w, placed("o-1"))
	_, err := db.ExecContext(t.Context(), "UPDATE outbox_event SET status = 0") // for the poller
	require.NoError(t, err)
	require.Eventually(t, func() bool { return len(box.ids()) > 0 }, 20*time.Second, 2*time.Millisecond)
	env := placed("o-2")
	env.DeliverAfter = 30 * time.Millisecond // only the poller brings it
	write(t, db, w, env)
	require.Eventually(t, func() bool { return slices.Contains(box.ids(), "o-2") }, 20*time.Second, 2*time.Millisecond)
	require.NoError(t, app.Stop(t.Context()))
}

func TestAStartThatFailsElsewhereClosesTheOutbox(t *testing.T) {
	t.Parallel()
	var o *outbox.Outbox
	app := fx.New(fx.NopLogger, fx.Supply(openSQLite(t)), outboxfx.Module, fx.Populate(&o),
		outboxfx.AsListener(newInbox, outboxfx.On("Order", "Placed")),
		fx.Invoke(func(lc fx.Lifecycle) {
			lc.Append(fx.StartHook(func() error { return errors.New("port in use") }))
		}))
	require.ErrorContains(t, app.Start(t.Context()), "port in use")
	require.ErrorIs(t, o.Start(t.Context()), outbox.ErrClosed)
}

func TestAStartThatFailsInTheOutbox(t *testing.T) {
	t.Parallel()
	db := openSQLite(t)
	var o, orders *outbox.Outbox
	app := fx.New(fx.NopLogger, fx.Supply(db), fx.Populate(&o), outboxfx.NewModule(
		outboxfx.Named("orders"), outboxfx.WithConfig(outboxfx.Config{TableName: "nowhere.events", CreateSchema: true})),
		named("orders", db), outboxfx.Module, fx.Populate(fx.Annotate(&orders, fx.ParamTags(`name:"orders"`))))
	require.NoError(t, app.Err())
	err := app.Start(t.Context())
	require.ErrorContains(t, err, `outboxfx: creating the table of the outbox "orders"`)
	require.ErrorContains(t, err, "nowhere.events")

	require.ErrorIs(t, orders.Start(t.Context()), outbox.ErrClosed)

	// A start context that has ended starts nothing; goleak would see it.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	again := fx.New(fx.NopLogger, fx.Supply(db), fx.Populate(&o), outboxfx.Module)
	require.Error(t, again.Start(ctx))
}

func TestAnAppThatStoppedDoesNotStartAgain(t *testing.T) {
	t.Parallel()
	app := fx.New(fx.NopLogger, fx.Supply(openSQLite(t)), outboxfx.Module)
	require.NoError(t, app.Start(t.Context()))
	require.NoError(t, app.Stop(t.Context()))
	require.ErrorIs(t, app.Start(t.Context()), outbox.ErrClosed)
}

func TestTheTableIsCreatedOnlyWhenAsked(t *testing.T) {
	t.Parallel()
	for _, create := range []bool{true, false} {
		db := openSQLite(t)
		_, err := db.ExecContext(t.Context(), "DROP TABLE outbox_event")
		require.NoError(t, err)
		app := fx.New(fx.NopLogger, fx.Supply(db), fx.Supply(outboxfx.Config{Mode: outboxfx.WriterOnly, CreateSchema: create}),
			outboxfx.NewModule(outboxfx.WithStore(sqlstore.SQLite())))
		require.NoError(t, app.Start(t.Context()))
		require.NoError(t, app.Stop(t.Context()))
		var tables int
		require.NoError(t, db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM sqlite_master WHERE name = 'outbox_event'").Scan(&tables))
		require.Equal(t, create, tables == 1)
	}
}
