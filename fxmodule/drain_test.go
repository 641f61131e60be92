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
	"github.com/outboxkit/outbox-go/outbox"
)

// fleet is an app of several named outboxes, each with a database, and one
// listener for all of them.
type fleet struct {
	dbs     map[string]*sql.DB
	writers map[string]*outbox.Writer
	opts    []fx.Option
}

func newFleet(t *testing.T, cfg outboxfx.Config, fn func(ctx context.Context, env outbox.Envelope) error, names ...string) *fleet {
	t.Helper()
	f := &fleet{dbs: map[string]*sql.DB{}, writers: map[string]*outbox.Writer{}, opts: []fx.Option{fx.NopLogger}}
	for _, name := range names {
		f.dbs[name] = openSQLite(t)
		f.opts = append(f.opts, named(name, f.dbs[name]), outboxfx.NewModule(outboxfx.Named(name), outboxfx.WithConfig(cfg)),
			fx.Invoke(fx.Annotate(func(w *outbox.Writer) { f.writers[name] = w }, fx.ParamTags(`name:"`+name+`"`))))
	}
	f.opts = append(f.opts, outboxfx.AsListener(func() outbox.Listener { return outbox.Handle(fn) }, outboxfx.On("Order", "Placed"), outboxfx.For(names...)))
	return f
}

// One after another they would take twice the drain's time each, and what is left
// of the stop timeout would be nothing for the last ones.
func TestOutboxesDrainAtTheSameTime(t *testing.T) {
	t.Parallel()
	names := []string{"a", "b", "c", "d"}
	var entered, draining atomic.Int32
	all := make(chan struct{}) // once every outbox's listener was told to stop
	f := newFleet(t, outboxfx.Config{Mode: outboxfx.MultiNode, Dispatcher: outboxfx.DispatcherConfig{WorkerCount: 1, DrainTimeout: time.Second}},
		func(ctx context.Context, _ outbox.Envelope) error {
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
		}, names...)
	app := fx.New(f.opts...)
	require.NoError(t, app.Err())
	require.NoError(t, app.Start(t.Context()))
	for _, name := range names {
		for _, id := range []string{"1", "2", "3"} {
			write(t, f.dbs[name], f.writers[name], placed(id))
		}
	}
	require.Eventually(t, func() bool { return entered.Load() == int32(len(names)) }, 20*time.Second, 2*time.Millisecond)
	require.NoError(t, app.Stop(t.Context()))
	for _, name := range names {
		var leased, left int
		require.NoError(t, f.dbs[name].QueryRowContext(t.Context(),
			"SELECT count(locked_by), count(*) FROM outbox_event WHERE status IN (0, 2)").Scan(&leased, &left))
		require.Zero(t, leased, name)
		require.Equal(t, 3, left, name)
	}
}

// The outbox that stands last in the options stops no earlier than what is
// between them: a server keeps its hot path.
func TestOutboxesDrainAfterWhatStandsBetweenThem(t *testing.T) {
	t.Parallel()
	db, d := map[string]*sql.DB{"a": openSQLite(t), "b": openSQLite(t)}, &diary{}
	var outboxes []*outbox.Outbox
	closeDB := func(name string) func(fx.Lifecycle) *sql.DB {
		return func(lc fx.Lifecycle) *sql.DB {
			lc.Append(fx.StopHook(func() { d.note("database " + name + " closed") }))
			return db[name]
		}
	}
	metrics := outboxfx.WithMetrics(noteClose{outbox.NopMetrics{}, func() { d.note("outbox closed") }})
	app := fx.New(fx.NopLogger,
		fx.Provide(fx.Annotated{Name: "a", Target: closeDB("a")}, fx.Annotated{Name: "b", Target: closeDB("b")}),
		outboxfx.NewModule(outboxfx.Named("a"), metrics),
		fx.Module("web", fx.Invoke(func(lc fx.Lifecycle) { lc.Append(fx.StopHook(func() { d.note("server stopped") })) })),
		outboxfx.NewModule(outboxfx.Named("b"), metrics),
		fx.Invoke(fx.Annotate(func(a, b *outbox.Outbox) { outboxes = []*outbox.Outbox{a, b} }, fx.ParamTags(`name:"a"`, `name:"b"`))))
	require.NoError(t, app.Err())
	require.NoError(t, app.Start(t.Context()))
	require.NoError(t, app.Stop(t.Context()))
	require.Equal(t, []string{"server stopped", "outbox closed", "outbox closed"}, d.notes[:3])
	require.ElementsMatch(t, []string{"database a closed", "database b closed"}, d.notes[3:])
	for _, o := range outboxes {
		require.ErrorIs(t, o.Start(t.Context()), outbox.ErrClosed)
	}
}

// noteClose is metrics that tell when they are closed.
type noteClose struct {
	outbox.Metrics
	note func()
}

func (n noteClose) Close() error { n.note(); return nil }
