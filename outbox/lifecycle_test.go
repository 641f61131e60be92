package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

func TestNewReportsEverythingAtOnce(t *testing.T) {
	t.Parallel()
	_, err := outbox.New(outbox.Config{
		Mode: outbox.MultiNode{
			Dispatch: outbox.DispatchOptions{Workers: -1, HotCapacity: -2, ColdCapacity: -3, MaxAttempts: -4, DrainTimeout: -5, ListenerTimeout: -6},
			Poll:     outbox.PollOptions{Interval: -1, BatchSize: -2, SkipRecent: -3},
			Claim:    outbox.ClaimOptions{LockTimeout: -1, Owner: string(make([]byte, 129))},
		},
		Purge:        &outbox.PurgeOptions{Retention: -2, BatchSize: -1, Interval: -1, OnDone: 9},
		Interceptors: []outbox.Interceptor{nil},
		RetryPolicy:  outbox.RetryPolicyFunc(nil),
	})
	for _, field := range []string{
		"Config.DB", "Config.Store", "Config.Mode.Dispatch.Workers is -1", "Config.Mode.Dispatch.HotCapacity is -2",
		"Config.Mode.Dispatch.ColdCapacity is -3", "Config.Mode.Dispatch.MaxAttempts is -4",
		"Config.Mode.Dispatch.DrainTimeout is -5ns", "Config.Mode.Dispatch.ListenerTimeout is -6ns",
		"Config.Mode.Poll.Interval is -1ns", "Config.Mode.Poll.BatchSize is -2", "Config.Mode.Poll.SkipRecent is -3ns",
		"Config.Mode.Claim.LockTimeout is -1ns", "Config.Mode.Claim.Owner is 129 characters",
		"Config.Purge.Retention is -2ns", "Config.Purge.BatchSize is -1", "Config.Purge.Interval is -1ns", "Config.Purge.OnDone",
		"Config.Interceptors[0] is nil", "Config.RetryPolicy is a nil",
	} {
		require.ErrorContains(t, err, field)
	}
	var field *outbox.FieldError
	require.ErrorAs(t, err, &field)
}

// A queue takes its memory at once, so that a slip would end the process.
func TestNewRefusesNumbersThatTakeTheMemory(t *testing.T) {
	t.Parallel()
	store := outboxtest.NewStore()
	_, err := outbox.New(outbox.Config{
		DB: store.DB(), Store: store,
		Mode: outbox.SingleNode{
			Dispatch: outbox.DispatchOptions{Workers: outbox.MaxWorkers + 1, HotCapacity: 2_000_000_000, ColdCapacity: outbox.MaxQueueCapacity + 1},
			Poll:     outbox.PollOptions{BatchSize: outbox.MaxBatch + 1},
		},
		Purge: &outbox.PurgeOptions{BatchSize: 1e9},
	})
	for _, want := range []string{
		"Config.Mode.Dispatch.Workers is 10001; the limit is 10000",
		"Config.Mode.Dispatch.HotCapacity is 2000000000; the limit is 1000000",
		"Config.Mode.Dispatch.ColdCapacity is 1000001; the limit is 1000000",
		"Config.Mode.Poll.BatchSize is 100001; the limit is 100000",
		"Config.Purge.BatchSize is 1000000000; the limit is 100000",
	} {
		require.ErrorContains(t, err, want)
	}
	ob, err := outbox.New(outbox.Config{
		DB: store.DB(), Store: store, Logger: quiet,
		Mode: outbox.SingleNode{
			Dispatch: outbox.DispatchOptions{Workers: outbox.MaxWorkers, HotCapacity: outbox.MaxQueueCapacity, ColdCapacity: outbox.MaxQueueCapacity},
			Poll:     outbox.PollOptions{BatchSize: outbox.MaxBatch},
		},
	})
	require.NoError(t, err)
	require.NoError(t, ob.Close(t.Context()))
}

type foreignMode struct{ outbox.Mode }

func TestNewRefusesAModeThatIsNotOne(t *testing.T) {
	t.Parallel()
	store := outboxtest.NewStore()
	_, err := outbox.New(outbox.Config{DB: store.DB(), Store: store, Mode: foreignMode{}})
	require.ErrorContains(t, err, "Config.Mode is a outbox_test.foreignMode")
}

func TestPartsReportWhatTheyMiss(t *testing.T) {
	t.Parallel()
	_, err := outbox.NewDispatcher(outbox.DispatcherConfig{})
	for _, field := range []string{"DispatcherConfig.DB", "DispatcherConfig.Store", "DispatcherConfig.Registry"} {
		require.ErrorContains(t, err, field)
	}
	_, err = outbox.NewPoller(outbox.PollerConfig{Handler: (*outbox.Dispatcher)(nil)})
	for _, field := range []string{"PollerConfig.DB", "PollerConfig.Store", "PollerConfig.Handler"} {
		require.ErrorContains(t, err, field)
	}
	_, err = outbox.NewPurger(outbox.PurgerConfig{})
	require.ErrorContains(t, err, "PurgerConfig.DB")
	_, err = outbox.NewWriter(outbox.WriterConfig{})
	require.ErrorContains(t, err, "WriterConfig.Store")
	require.ErrorContains(t, err, "WriterConfig.Source")
	_, err = outbox.NewDeadLetters(nil, nil)
	require.ErrorContains(t, err, "DeadLetters.DB")
}

func TestLifecycleOrder(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	for name, mode := range map[string]outbox.Mode{"single": outbox.SingleNode{}, "multi": outbox.MultiNode{}, "ordered": outbox.Ordered{}, "writer": outbox.WriterOnly{}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := build(t, outbox.Config{Mode: mode, Purge: &outbox.PurgeOptions{}}, nil)
			require.NoError(t, e.Register(outbox.On("A", "B", outbox.Handle(noop))))
			require.ErrorIs(t, e.Register(outbox.On("A", "B", outbox.Handle(noop))), outbox.ErrDuplicateListener)
			require.NoError(t, e.Start(ctx))
			require.NoError(t, e.Start(ctx), "starting twice is harmless")
			require.ErrorIs(t, e.Register(outbox.On("A", "C", outbox.Handle(noop))), outbox.ErrStarted)
			require.NoError(t, e.Close(ctx))
			require.NoError(t, e.Close(ctx), "closing twice is harmless")
			require.ErrorIs(t, e.Start(ctx), outbox.ErrClosed)
			require.ErrorIs(t, e.Register(outbox.On("A", "C", outbox.Handle(noop))), outbox.ErrClosed)

			unstarted := build(t, outbox.Config{Mode: mode, Purge: &outbox.PurgeOptions{}}, nil)
			require.NoError(t, unstarted.Close(ctx), "closing before the start is fine")
			require.ErrorIs(t, unstarted.Start(ctx), outbox.ErrClosed)

			ended, cancel := context.WithCancel(ctx)
			cancel()
			late := build(t, outbox.Config{Mode: mode}, nil)
			require.ErrorIs(t, late.Start(ended), context.Canceled)
			require.NoError(t, late.Start(ctx), "a start that did not happen can be made up for")
		})
	}
}

func TestRunStartsAndClosesWithItsContext(t *testing.T) {
	t.Parallel()
	got := make(chan struct{})
	e := build(t, outbox.Config{}, func(context.Context, outbox.Envelope) (outbox.Result, error) {
		close(got)
		return outbox.Done(), nil
	})
	e.write(said("before the start")) // the poller finds it
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	<-got
	cancel()
	require.NoError(t, <-ended)
	row, _ := e.store.Row("before the start")
	require.Equal(t, outbox.StatusDone, row.Status, "Close stores what was delivered")
}

func TestCloseDeliversWhatIsQueued(t *testing.T) {
	t.Parallel()
	var c calls
	gate := make(chan struct{})
	e := start(t, outbox.Config{Mode: outbox.SingleNode{Dispatch: outbox.DispatchOptions{Workers: 1}, Poll: outbox.PollOptions{Interval: time.Hour}}},
		func(_ context.Context, env outbox.Envelope) (outbox.Result, error) {
			<-gate
			c.add(env.EventID)
			return outbox.Done(), nil
		})
	for i := range 50 {
		e.write(said(fmt.Sprint("e", i)))
	}
	closed := make(chan error)
	go func() { closed <- e.Close(context.Background()) }()
	close(gate)
	require.NoError(t, <-closed)
	events, _ := c.total()
	require.Equal(t, 50, events)
	for i := range 50 {
		row, _ := e.store.Row(fmt.Sprint("e", i))
		require.Equal(t, outbox.StatusDone, row.Status)
	}
}

// What the shutdown cuts off is no failed attempt, and no longer leased.
func TestCloseGivesBackWhatItCutsOff(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]outbox.Mode{
		"single node": outbox.SingleNode{Dispatch: outbox.DispatchOptions{Workers: 2, DrainTimeout: 20 * time.Millisecond}},
		"multi node":  outbox.MultiNode{Dispatch: outbox.DispatchOptions{Workers: 2, DrainTimeout: 20 * time.Millisecond}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			running := make(chan struct{}, 10)
			e := start(t, outbox.Config{Mode: mode}, func(ctx context.Context, _ outbox.Envelope) (outbox.Result, error) {
				running <- struct{}{}
				<-ctx.Done()
				return outbox.Done(), ctx.Err()
			})
			e.write(said("a"), said("b"), said("c"), said("d"))
			<-running
			<-running
			require.NoError(t, e.Close(t.Context()))
			for _, id := range []string{"a", "b", "c", "d"} {
				row, _ := e.store.Row(id)
				require.Equal(t, outbox.StatusNew, row.Status)
				require.Zero(t, row.Attempts)
				require.Empty(t, row.LastError)
				require.Empty(t, row.LockedBy)
			}
		})
	}
}

func TestCloseCutsTheDrainShortWhenItsContextEnds(t *testing.T) {
	t.Parallel()
	running := make(chan struct{})
	e := start(t, outbox.Config{Mode: outbox.SingleNode{Dispatch: outbox.DispatchOptions{DrainTimeout: time.Hour}}},
		func(ctx context.Context, _ outbox.Envelope) (outbox.Result, error) {
			close(running)
			<-ctx.Done()
			return outbox.Done(), ctx.Err()
		})
	e.write(said("long"))
	<-running
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, e.Close(ctx))
	row, _ := e.store.Row("long")
	require.Equal(t, outbox.StatusNew, row.Status)
}

func TestCloseReportsListenersThatWillNotEnd(t *testing.T) {
	t.Parallel()
	running, release := make(chan struct{}), make(chan struct{})
	e := start(t, outbox.Config{Mode: outbox.SingleNode{Dispatch: outbox.DispatchOptions{DrainTimeout: 10 * time.Millisecond}}},
		func(context.Context, outbox.Envelope) (outbox.Result, error) {
			close(running)
			<-release
			return outbox.Done(), nil
		})
	e.write(said("deaf"))
	<-running
	require.ErrorContains(t, e.Close(t.Context()), "listeners still run")
	close(release) // so that the worker ends before the test's leak check
	row, _ := e.store.Row("deaf")
	require.Equal(t, outbox.StatusNew, row.Status, "its outcome comes too late; it will be delivered again")
}

func TestListenerTimeoutEndsItsContext(t *testing.T) {
	t.Parallel()
	e := start(t, outbox.Config{Mode: outbox.SingleNode{Dispatch: outbox.DispatchOptions{ListenerTimeout: 5 * time.Millisecond, MaxAttempts: 1}}},
		func(ctx context.Context, _ outbox.Envelope) (outbox.Result, error) {
			<-ctx.Done()
			return outbox.Done(), ctx.Err()
		})
	e.write(said("slow"))
	require.Contains(t, e.await("slow", outbox.StatusDead).LastError, "deadline exceeded")
}

// failing refuses marks a number of times.
type failing struct {
	*outboxtest.Store
	failures atomic.Int32
	refuse   string // this event's outcome can never be stored
}

func (f *failing) memory() *outboxtest.Store { return f.Store }

func (f *failing) Mark(ctx context.Context, db outbox.DB, kind outbox.Outcome, marks []outbox.Mark) (map[string]outbox.RowState, error) {
	if f.failures.Add(-1) >= 0 {
		return nil, errors.New("the database is away")
	}
	for _, m := range marks {
		if m.EventID == f.refuse {
			return nil, errors.New("this row will not do")
		}
	}
	return f.Store.Mark(ctx, db, kind, marks)
}

func TestAnOutcomeIsStoredAgainUntilItIs(t *testing.T) {
	t.Parallel()
	store := &failing{Store: outboxtest.NewStore()}
	store.failures.Store(3)
	var c calls
	e := start(t, outbox.Config{Store: store, Mode: outbox.SingleNode{Poll: outbox.PollOptions{Interval: time.Millisecond}}},
		func(_ context.Context, env outbox.Envelope) (outbox.Result, error) {
			c.add(env.EventID)
			return outbox.Done(), nil
		})
	e.write(said("stubborn"))
	e.await("stubborn", outbox.StatusDone)
	require.NoError(t, e.Close(t.Context()))
	require.Equal(t, map[string]int{"stubborn": 1}, c.n, "a success is never delivered again while the process lives")
}

func TestOneOutcomeThatCannotBeStoredDoesNotHoldUpTheRest(t *testing.T) {
	t.Parallel()
	store := &failing{Store: outboxtest.NewStore(), refuse: "bad"}
	gate := make(chan struct{})
	e := start(t, outbox.Config{Store: store, Mode: outbox.SingleNode{Dispatch: outbox.DispatchOptions{DrainTimeout: 50 * time.Millisecond}}},
		func(context.Context, outbox.Envelope) (outbox.Result, error) {
			<-gate
			return outbox.Done(), nil
		})
	e.write(said("good"), said("bad"), said("fine"))
	close(gate)
	e.await("good", outbox.StatusDone)
	e.await("fine", outbox.StatusDone)
	e.write(said("later"))
	e.await("later", outbox.StatusDone)
	require.ErrorContains(t, e.Close(t.Context()), "could not be stored")
}

func TestCloseEndsAlsoWhenTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]outbox.Mode{
		"single node": outbox.SingleNode{Dispatch: outbox.DispatchOptions{HotCapacity: 5000, DrainTimeout: 50 * time.Millisecond}},
		"multi node":  outbox.MultiNode{Dispatch: outbox.DispatchOptions{HotCapacity: 5000, DrainTimeout: 50 * time.Millisecond}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := &failing{Store: outboxtest.NewStore()}
			store.failures.Store(1 << 30)
			var c calls
			e := start(t, outbox.Config{Store: store, Mode: mode}, func(_ context.Context, env outbox.Envelope) (outbox.Result, error) {
				c.add(env.EventID)
				return outbox.Done(), nil
			})
			envs := make([]outbox.Envelope, 4000) // more than the completer keeps
			for i := range envs {
				envs[i] = said("")
			}
			e.write(envs...)
			require.Eventually(t, func() bool { n, _ := c.total(); return n > 1000 }, 20*time.Second, time.Millisecond)
			closed := make(chan error, 1)
			go func() { closed <- e.Close(context.Background()) }()
			select {
			case err := <-closed:
				require.ErrorContains(t, err, "could not be stored")
				require.NotContains(t, err.Error(), "listeners still run")
			case <-time.After(30 * time.Second):
				t.Fatal("Close hangs while the database is away")
			}
		})
	}
}

type closingMetrics struct {
	outbox.NopMetrics
	err error
}

func (m closingMetrics) Close() error { return m.err }

func TestCloseClosesTheMetricsLastAndJoinsErrors(t *testing.T) {
	t.Parallel()
	broken := errors.New("exporter is gone")
	e := start(t, outbox.Config{Metrics: closingMetrics{err: broken}}, nil)
	require.ErrorIs(t, e.Close(t.Context()), broken)
}

func TestOrderedDeliversInOrderOneAtATime(t *testing.T) {
	t.Parallel()
	var order []string
	var running atomic.Int32
	done := make(chan struct{})
	e := build(t, outbox.Config{Mode: outbox.Ordered{Poll: outbox.PollOptions{Interval: time.Millisecond, BatchSize: 3}}},
		func(_ context.Context, env outbox.Envelope) (outbox.Result, error) {
			if running.Add(1) > 1 {
				order = append(order, "two at once")
			}
			defer running.Add(-1)
			order = append(order, env.EventID)
			<-time.After(3 * time.Millisecond)
			if len(order) == 10 {
				close(done)
			}
			if env.EventID == "3" {
				return outbox.Done(), errors.New("one attempt is all it gets")
			}
			return outbox.Done(), nil
		})
	at := time.Now().Add(-time.Minute)
	var want []string
	for i := range 10 {
		want = append(want, fmt.Sprint(i))
		env := said(fmt.Sprint(9 - i)) // the later event is written first
		env.OccurredAt = at.Add(time.Duration(9-i) * time.Millisecond)
		e.write(env)
	}
	require.NoError(t, e.Start(t.Context()))
	<-done
	require.NoError(t, e.Close(t.Context()))
	require.Equal(t, want, order)
	row, _ := e.store.Row("3")
	require.Equal(t, outbox.StatusDead, row.Status)
	require.Equal(t, 1, row.Attempts)
}
