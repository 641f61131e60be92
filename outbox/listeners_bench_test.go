package outbox_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// noStore is a store whose outcomes are stored without work.
type noStore struct{ *outboxtest.Store }

func (noStore) Mark(context.Context, outbox.DB, outbox.Outcome, []outbox.Mark) (map[string]outbox.RowState, error) {
	return nil, nil
}

// BenchmarkDeliverListeners is one delivery without a database: to one listener, to
// three, and to an interceptor that calls three functions.
func BenchmarkDeliverListeners(b *testing.B) {
	for _, name := range []string{"one", "three named", "an interceptor with three"} {
		b.Run(name, func(b *testing.B) {
			store := noStore{outboxtest.NewStore()}
			bindings, interceptors := listenersOf(name, noop)
			ob, err := outbox.New(outbox.Config{DB: store.DB(), Store: store, Interceptors: interceptors, Logger: quiet})
			require.NoError(b, err)
			require.NoError(b, ob.Register(bindings...))
			env := said("e")
			env.AggregateType = outbox.Global
			b.ReportAllocs()
			for b.Loop() {
				if _, err := ob.Deliver(b.Context(), env); err != nil {
					b.Fatal(err)
				}
			}
			require.NoError(b, ob.Close(context.Background()))
		})
	}
}

func listenersOf(name string, fn func(context.Context, outbox.Envelope) error) ([]outbox.Binding, []outbox.Interceptor) {
	switch name {
	case "one":
		return []outbox.Binding{outbox.On("", "Said", outbox.ListenerFunc(fn))}, nil
	case "three named":
		var bindings []outbox.Binding
		for _, name := range []string{"mail", "search", "audit"} {
			bindings = append(bindings, outbox.On("", "Said", outbox.ListenerFunc(fn), outbox.Named(name)))
		}
		return bindings, nil
	default:
		two := outbox.Before(func(ctx context.Context, env outbox.Envelope) error {
			for range 2 {
				if err := fn(ctx, env); err != nil {
					return err
				}
			}
			return nil
		})
		return []outbox.Binding{outbox.On("", "Said", outbox.ListenerFunc(fn))}, []outbox.Interceptor{two}
	}
}

// BenchmarkDrainListeners is a backlog delivered to three listeners that do nothing,
// with names and by an interceptor, in turns; the figure is the ratio of the fastest.
func BenchmarkDrainListeners(b *testing.B) {
	for _, target := range adaptertest.Main() {
		b.Run(target.Name, func(b *testing.B) {
			db, store, _ := benchStore(b, target)
			times := map[string][]time.Duration{}
			names := []string{"three named", "an interceptor with three"}
			for range b.N {
				slices.Reverse(names)
				for _, name := range names {
					_, err := db.ExecContext(b.Context(), "DELETE FROM outbox_event")
					require.NoError(b, err)
					bindings, interceptors := listenersOf(name, noop)
					times[name] = append(times[name], deliverBacklog(b, outbox.Config{DB: db.DB, Store: store, Interceptors: interceptors}, func(n int) { fill(b, db, store, n) }, bindings, 20_000))
				}
			}
			fastest := func(name string) float64 { return slices.Min(times[name]).Seconds() }
			b.ReportMetric(20_000/fastest("three named"), "events/s")
			b.ReportMetric(fastest("an interceptor with three")/fastest("three named"), "ratio")
		})
	}
}

// deliverBacklog delivers a backlog and returns how long that took.
func deliverBacklog(b *testing.B, cfg outbox.Config, fill func(n int), bindings []outbox.Binding, backlog int) time.Duration {
	b.Helper()
	fill(backlog)
	all := make(chan struct{})
	var heard atomic.Int64
	cfg.Logger = quiet
	cfg.Interceptors = append(cfg.Interceptors, outbox.After(func(context.Context, outbox.Envelope, error) {
		if heard.Add(1) == int64(backlog) {
			close(all)
		}
	}))
	ob, err := outbox.New(cfg)
	require.NoError(b, err)
	require.NoError(b, ob.Register(bindings...))
	began := time.Now()
	require.NoError(b, ob.Start(b.Context()))
	<-all
	require.NoError(b, ob.Close(context.Background()))
	return time.Since(began)
}

// BenchmarkDrainFailing is a backlog until all outcomes are stored, with one listener
// or three, of which none, one or all fail.
func BenchmarkDrainFailing(b *testing.B) {
	const backlog = 20_000
	ok := outbox.ListenerFunc(noop)
	fails := outbox.ListenerFunc(func(context.Context, outbox.Envelope) error { return errDown })
	named := func(mail, search, audit outbox.Listener) []outbox.Binding {
		return []outbox.Binding{
			outbox.On("", "Said", mail, outbox.Named("mail")), outbox.On("", "Said", search, outbox.Named("search")), outbox.On("", "Said", audit, outbox.Named("audit")),
		}
	}
	for _, target := range adaptertest.Main() {
		for name, bindings := range map[string][]outbox.Binding{
			"one":               {outbox.On("", "Said", ok)},
			"one, which fails":  {outbox.On("", "Said", fails)},
			"three":             named(ok, ok, ok),
			"three, one fails":  named(ok, fails, ok),
			"three, which fail": named(fails, fails, fails),
		} {
			b.Run(target.Name+"/"+name, func(b *testing.B) {
				db, store, _ := benchStore(b, target)
				var took time.Duration
				for range b.N {
					_, err := db.ExecContext(b.Context(), "DELETE FROM outbox_event")
					require.NoError(b, err)
					took += deliverBacklog(b, outbox.Config{DB: db.DB, Store: store, RetryPolicy: afterAnHour}, func(n int) { fill(b, db, store, n) }, bindings, backlog)
				}
				b.ReportMetric(float64(backlog*b.N)/took.Seconds(), "events/s")
			})
		}
	}
}
