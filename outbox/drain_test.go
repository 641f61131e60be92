package outbox_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// eachMode runs a test in each mode that delivers, in a bubble.
func eachMode(t *testing.T, fn func(t *testing.T, mode outbox.Mode)) {
	t.Helper()
	for name, mode := range everyMode {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { fn(t, mode) })
		})
	}
}

// drain drains without an error.
func (e *engine) drain(n int) outbox.Drained {
	e.t.Helper()
	got, err := e.Drain(e.t.Context(), n)
	require.NoError(e.t, err)
	return got
}

// leavesNothing checks that no lease, range, hold or report of a process is in the tables.
func leavesNothing(t *testing.T, store *outboxtest.Store) {
	t.Helper()
	require.Empty(t, rangesOf(t, store))
	nodes, err := store.Nodes(t.Context(), store.DB())
	require.NoError(t, err)
	require.Empty(t, nodes)
	for _, row := range store.Rows() {
		require.Empty(t, row.LockedBy, row.Envelope.EventID)
	}
}

func TestDrainDeliversTheEventsThatAreDue(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, mode outbox.Mode) {
		var c calls
		e := build(t, outbox.Config{Mode: mode}, func(_ context.Context, env outbox.Envelope) error {
			c.add(env.EventID)
			return nil
		})
		delayed := said("later")
		delayed.AvailableAt = time.Now().Add(time.Hour)
		e.write(append(numbered("a", 20), delayed)...)
		require.Equal(t, outbox.Drained{Done: 20, Left: 0, NextDue: delayed.AvailableAt.UTC()}, e.drain(100))
		leavesNothing(t, e.store)
		require.Equal(t, map[outbox.Status]int{outbox.StatusDone: 20, outbox.StatusNew: 1}, statuses(e.store))

		require.Equal(t, outbox.Drained{NextDue: delayed.AvailableAt.UTC()}, e.drain(100), "nothing is due")
		time.Sleep(time.Hour)
		require.Equal(t, outbox.Drained{Done: 1}, e.drain(100))
		leavesNothing(t, e.store)
		events, deliveries := c.total()
		require.Equal(t, []int{21, 21}, []int{events, deliveries})
	})
}

func TestDrainDeliversNoMoreThanItMay(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, mode outbox.Mode) {
		var c calls
		e := build(t, outbox.Config{Mode: mode}, func(_ context.Context, env outbox.Envelope) error {
			c.add(env.EventID)
			time.Sleep(time.Millisecond)
			return nil
		})
		e.write(numbered("a", 50)...)
		e.write(numbered("b", 50)...)
		for left := 93; left >= 30; left -= 7 {
			require.Equal(t, outbox.Drained{Done: 7, Left: left, More: true}, e.drain(7))
			_, deliveries := c.total()
			require.Equal(t, 100-left, deliveries)
			leavesNothing(t, e.store)
		}
		require.Equal(t, outbox.Drained{Done: 30}, e.drain(1_000))
		events, deliveries := c.total()
		require.Equal(t, []int{100, 100}, []int{events, deliveries})
		require.Equal(t, outbox.Drained{}, e.drain(1))
	})
}

func TestDrainDeliversAnEventAtMostOnce(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, mode outbox.Mode) {
		var c calls
		var e *engine
		e = build(t, outbox.Config{Mode: mode}, func(_ context.Context, env outbox.Envelope) error {
			c.add(env.EventID)
			switch env.EventID {
			case "fails":
				return outbox.RetryIn(0, errors.New("boom"))
			case "waits":
				return outbox.Defer(0)
			case "writes":
				time.Sleep(time.Millisecond)
				e.write(said("")) // would go on for ever
			}
			return nil
		})
		e.write(said("fails"), said("waits"), said("writes"), said("works"))
		got := e.drain(1_000)
		require.Equal(t, map[string]int{"fails": 1, "waits": 1, "writes": 1, "works": 1}, c.n)
		require.Equal(t, []int{2, 1, 1}, []int{got.Done, got.Failed + got.Dead, got.Deferred})
		require.False(t, got.More)
		leavesNothing(t, e.store)
		time.Sleep(time.Second)
		e.drain(1_000)
		require.Equal(t, []int{1 + got.Failed, 2, 1}, []int{c.of("fails"), c.of("waits"), c.of("works")})
	})
}

func TestDrainEndsWithItsContext(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, mode outbox.Mode) {
		ctx, cancel := context.WithCancel(t.Context())
		began := make(chan struct{}, 100)
		e := build(t, outbox.Config{Mode: mode}, func(ctx context.Context, _ outbox.Envelope) error {
			began <- struct{}{}
			<-ctx.Done()
			return ctx.Err()
		})
		e.write(numbered("a", 100)...)
		go func() {
			<-began
			cancel()
		}()
		at := time.Now()
		got, err := e.Drain(ctx, 1_000)
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, outbox.Drained{Left: 100, More: true}, got)
		require.Less(t, time.Since(at), time.Second)
		leavesNothing(t, e.store)
		for _, row := range e.store.Rows() {
			require.Zero(t, row.Attempts)
		}
	})
}

func TestDrainHasItsTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began, leave := make(chan struct{}), make(chan struct{})
		e := build(t, outbox.Config{}, func(context.Context, outbox.Envelope) error {
			close(began)
			<-leave
			return nil
		})
		_, err := e.Drain(t.Context(), 0)
		require.EqualError(t, err, "outbox: Drain n is 0; give the most events to deliver, at least 1")
		require.ErrorAs(t, err, new(*outbox.FieldError))
		e.write(said("a"))
		ended := make(chan outbox.Drained)
		go func() { ended <- e.drain(10) }()
		<-began
		_, err = e.Drain(t.Context(), 10)
		require.ErrorIs(t, err, outbox.ErrDraining)
		require.ErrorIs(t, e.Start(t.Context()), outbox.ErrDraining)
		require.ErrorIs(t, e.Register(outbox.On("A", "B", outbox.ListenerFunc(noop))), outbox.ErrDraining)
		_, err = e.Deliver(t.Context(), said("b"))
		require.ErrorIs(t, err, outbox.ErrDraining)
		close(leave)
		require.Equal(t, outbox.Drained{Done: 1}, <-ended)

		require.NoError(t, e.Register(outbox.On("A", "B", outbox.ListenerFunc(noop))), "between two Drains")
		require.NoError(t, e.Start(t.Context()))
		_, err = e.Drain(t.Context(), 10)
		require.ErrorIs(t, err, outbox.ErrStarted)
		require.NoError(t, e.Close(t.Context()))
		_, err = e.Drain(t.Context(), 10)
		require.ErrorIs(t, err, outbox.ErrClosed)

		writer := build(t, outbox.Config{Mode: outbox.WriterOnly{}}, nil)
		_, err = writer.Drain(t.Context(), 10)
		require.EqualError(t, err, "outbox: Config.Mode is WriterOnly, which delivers nothing; choose a mode that delivers")
	})
}

func TestCloseEndsADrain(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, mode outbox.Mode) {
		began := make(chan struct{}, 100)
		e := build(t, outbox.Config{Mode: mode}, func(ctx context.Context, _ outbox.Envelope) error {
			began <- struct{}{}
			<-ctx.Done()
			return ctx.Err()
		})
		e.write(numbered("a", 100)...)
		ended := make(chan error, 1)
		go func() {
			_, err := e.Drain(t.Context(), 1_000)
			ended <- err
		}()
		<-began
		require.NoError(t, e.Close(t.Context()))
		select {
		case err := <-ended: // before Close returned, or about to
			require.ErrorIs(t, err, outbox.ErrClosed)
		case <-time.After(time.Second):
			t.Fatal("the Drain goes on")
		}
		leavesNothing(t, e.store)
	})
}

func TestDrainReturnsAtOnceWhileAnotherProcessHoldsTheTable(t *testing.T) {
	t.Parallel()
	eachHoldMode(t, func(t *testing.T, mode outbox.Mode) {
		store, book := outboxtest.NewStore(), &logbook{}
		hold(t, store, "another", time.Hour)
		e := build(t, outbox.Config{Store: store, Mode: mode, Logger: slog.New(book)}, noop)
		e.write(numbered("a", 3)...)
		at := time.Now()
		require.Equal(t, outbox.Drained{Left: 3, Elsewhere: 3}, e.drain(10))
		require.Zero(t, time.Since(at))
		require.Empty(t, book.about("standby"), "this process does not wait")

		hold(t, store, "", 0)
		require.Equal(t, outbox.Drained{Done: 3}, e.drain(10))
		leavesNothing(t, store)
	})
}

func TestDrainLeavesPausedEventsAndTheEventsOfOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := build(t, outbox.Config{Mode: outbox.MultiNode{}}, noop)
		require.NoError(t, e.Pause(t.Context(), outbox.Pause{Kind: outbox.EventKind{EventType: "Paused"}}))
		several(e, 5, "p", "Paused")
		several(e, 7, "s", "Said")
		require.Equal(t, outbox.Drained{Done: 7, Left: 5, Paused: 5}, e.drain(100))
		leavesNothing(t, e.store)

		insertLeased(t, e.store, "l1", "another/1")
		insertLeased(t, e.store, "l2", "another/2")
		require.Equal(t, outbox.Drained{Left: 7, Paused: 5, Elsewhere: 2}, e.drain(100))

		list := e.ranges()
		set, err := e.store.SetRanges(t.Context(), nil, list.Version, list.Now.Add(time.Minute), outbox.Ranges{Version: "x", Ranges: []outbox.Range{{
			Name: "another/3", Upto: outbox.Cursor{AvailableAt: time.Now().Add(time.Second).UTC(), CreatedAt: time.Now().UTC(), EventID: "z"}, Until: list.Now.Add(time.Minute),
		}}})
		require.NoError(t, err)
		require.True(t, set)
		several(e, 4, "r", "Said")
		require.Equal(t, outbox.Drained{Left: 11, Paused: 5, Elsewhere: 6}, e.drain(100))
	})
}

func (e *engine) ranges() outbox.Ranges {
	list, err := e.store.Ranges(e.t.Context(), nil)
	require.NoError(e.t, err)
	return list
}

// insertLeased inserts an event that is due, under a lease that begins now.
func insertLeased(t *testing.T, store *outboxtest.Store, id, lease string) {
	t.Helper()
	now := time.Now().UTC().Truncate(time.Microsecond)
	env := said(id)
	env.AggregateType, env.OccurredAt, env.AvailableAt = outbox.Global, now, now
	scope := outboxtest.NewScope(store.DB())
	require.NoError(t, store.Insert(t.Context(), scope, []outbox.Envelope{env}, lease, now))
	require.NoError(t, scope.Commit())
}

// A rate holds over the Drains of a process, and a Drain waits for it until its context ends.
func TestDrainObeysARate(t *testing.T) {
	t.Parallel()
	for name, mode := range limitedModes(outbox.Rules{Rate: 1, Burst: 2}) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				var mu sync.Mutex // two begin at once
				var at []time.Duration
				e := build(t, outbox.Config{Mode: mode}, func(context.Context, outbox.Envelope) error {
					mu.Lock()
					defer mu.Unlock()
					at = append(at, time.Since(began))
					return nil
				})
				several(e, 12, "e", "Said")
				ctx, cancel := context.WithTimeout(t.Context(), 3500*time.Millisecond)
				defer cancel()
				got, err := e.Drain(ctx, 100)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.Equal(t, outbox.Drained{Done: 5, Left: 7, More: true}, got)
				leavesNothing(t, e.store)
				require.Equal(t, outbox.Drained{Done: 7}, e.drain(100))
				want := []time.Duration{0}
				for i := range 11 {
					want = append(want, time.Duration(i)*time.Second)
				}
				for i := range want {
					require.InDelta(t, want[i].Seconds(), at[i].Seconds(), 0.1)
				}
			})
		})
	}
}

// closable are metrics that an outbox closes.
type closable struct {
	outbox.NopMetrics
	delivered, closed atomic.Int64
}

func (c *closable) Delivered(outbox.EventKind, time.Duration) { c.delivered.Add(1) }

func (c *closable) Close() error {
	c.closed.Add(1)
	return nil
}

func TestDrainHasTheMetricsAndInterceptorsOfTheOutbox(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		metrics := &closable{}
		var intercepted atomic.Int64
		e := build(t, outbox.Config{Metrics: metrics, Interceptors: []outbox.Interceptor{outbox.Before(func(context.Context, outbox.Envelope) error {
			intercepted.Add(1)
			return nil
		})}}, noop)
		for range 20 {
			e.write(said(""))
			require.Equal(t, outbox.Drained{Done: 1}, e.drain(10))
		}
		require.EqualValues(t, 20, metrics.delivered.Load())
		require.EqualValues(t, 20, intercepted.Load())
		require.Zero(t, metrics.closed.Load())
		require.NoError(t, e.Close(t.Context()))
		require.EqualValues(t, 1, metrics.closed.Load())
	})
}

func TestAListenerCompletesItsEventInADrain(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, mode outbox.Mode) {
		var e *engine
		e = build(t, outbox.Config{Mode: mode}, func(ctx context.Context, _ outbox.Envelope) error {
			scope := outboxtest.NewScope(e.store.DB())
			if err := e.Writer().Complete(ctx, scope); err != nil {
				return err
			}
			return scope.Commit()
		})
		e.write(numbered("a", 5)...)
		require.Equal(t, outbox.Drained{Done: 5}, e.drain(10))
		leavesNothing(t, e.store)
	})
}

// Events without a listener stay for other processes, and are found once.
func TestDrainLeavesEventsWithoutAListener(t *testing.T) {
	t.Parallel()
	for name, mode := range modesThatLeave {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				e := build(t, outbox.Config{Mode: mode}, handled)
				e.write(sung("a"), said("b"), sung("c"))
				for i, want := range []outbox.Drained{{Done: 1, Left: 2, Paused: 2}, {Left: 2, Paused: 2}} {
					got, err := e.Drain(t.Context(), 10)
					require.NoError(t, err)
					require.Equal(t, want, got, "Drain %d", i+1)
				}
				for _, id := range []string{"a", "c"} {
					row, _ := e.store.Row(id)
					require.Equal(t, outbox.StatusNew, row.Status)
					require.Empty(t, row.LockedBy)
				}
			})
		})
	}
	_, err := build(t, outbox.Config{}, nil).Drain(t.Context(), 10)
	require.ErrorContains(t, err, "has no listener, so there is nothing to deliver")
}
