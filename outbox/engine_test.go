package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

var quiet = slog.New(slog.DiscardHandler)

// engine is an outbox on a store in memory. It stops with the test.
type engine struct {
	*outbox.Outbox
	store *outboxtest.Store
	t     *testing.T
}

// start builds and starts an engine whose listener of "Said" is fn.
func start(t *testing.T, cfg outbox.Config, fn func(ctx context.Context, env outbox.Envelope) (outbox.Result, error)) *engine {
	t.Helper()
	e := build(t, cfg, fn)
	require.NoError(t, e.Start(t.Context()))
	return e
}

func build(t *testing.T, cfg outbox.Config, fn func(ctx context.Context, env outbox.Envelope) (outbox.Result, error)) *engine {
	t.Helper()
	store, ok := cfg.Store.(*outboxtest.Store)
	if cfg.Store == nil {
		store = outboxtest.NewStore()
		cfg.Store = store
	} else if !ok {
		store = cfg.Store.(interface{ memory() *outboxtest.Store }).memory()
	}
	if cfg.DB == nil {
		cfg.DB = store.DB()
	}
	if cfg.Logger == nil {
		cfg.Logger = quiet
	}
	ob, err := outbox.New(cfg)
	require.NoError(t, err)
	if fn != nil {
		require.NoError(t, ob.Register(outbox.On("", "Said", outbox.ListenerFunc(fn))))
	}
	t.Cleanup(func() { _ = ob.Close(context.Background()) })
	return &engine{Outbox: ob, store: store, t: t}
}

func said(id string) outbox.Envelope {
	return outbox.Envelope{EventID: id, EventType: "Said", Payload: outbox.JSON(id)}
}

// write writes events in a transaction of their own and commits it.
func (e *engine) write(envs ...outbox.Envelope) []string {
	e.t.Helper()
	scope := outboxtest.NewScope(e.store.DB())
	ids, err := e.Writer().WriteScope(e.t.Context(), scope, envs)
	require.NoError(e.t, err)
	require.NoError(e.t, scope.Commit())
	return ids
}

// row waits until the event has the status, and returns its row.
func (e *engine) await(id string, status outbox.Status) outboxtest.Row {
	e.t.Helper()
	var row outboxtest.Row
	require.Eventually(e.t, func() bool {
		row, _ = e.store.Row(id)
		return row.Status == status
	}, 20*time.Second, time.Millisecond, "event %s never became %s", id, status)
	return row
}

// calls counts deliveries by event.
type calls struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *calls) add(id string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[string]int{}
	}
	c.n[id]++
	return c.n[id]
}

func (c *calls) total() (events, deliveries int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.n {
		events, deliveries = events+1, deliveries+n
	}
	return events, deliveries
}

func TestCommittedEventIsDeliveredAndDone(t *testing.T) {
	t.Parallel()
	got := make(chan outbox.Envelope, 1)
	e := start(t, outbox.Config{Mode: outbox.SingleNode{Poll: outbox.PollOptions{Interval: time.Hour}}},
		func(_ context.Context, env outbox.Envelope) (outbox.Result, error) {
			got <- env
			return outbox.Done(), nil
		})
	ids := e.write(said(""))
	env := <-got
	require.Equal(t, ids[0], env.EventID)
	require.Equal(t, `""`, env.Payload.String())
	require.Equal(t, env.OccurredAt, env.OccurredAt.Truncate(time.Microsecond))
	require.Equal(t, time.UTC, env.OccurredAt.Location())
	row := e.await(env.EventID, outbox.StatusDone)
	require.False(t, row.DoneAt.IsZero())
	require.Zero(t, row.Attempts)
}

func TestRolledBackEventIsNeverDelivered(t *testing.T) {
	t.Parallel()
	var c calls
	e := start(t, outbox.Config{Mode: outbox.SingleNode{Poll: outbox.PollOptions{Interval: time.Millisecond}}},
		func(_ context.Context, env outbox.Envelope) (outbox.Result, error) {
			c.add(env.EventID)
			return outbox.Done(), nil
		})
	scope := outboxtest.NewScope(e.store.DB())
	_, err := e.Writer().WriteScope(t.Context(), scope, []outbox.Envelope{said("gone")})
	require.NoError(t, err)
	require.NoError(t, scope.Rollback(nil))
	e.write(said("kept"))
	e.await("kept", outbox.StatusDone)
	require.NoError(t, e.Close(t.Context()))
	require.Equal(t, map[string]int{"kept": 1}, c.n)
}

// An event must not reach its listener twice however the two paths race: slow
// listeners, a poller that never rests, transactions that take their time.
func TestNoDuplicatesBetweenHotAndColdPath(t *testing.T) {
	t.Parallel()
	var c calls
	e := start(t, outbox.Config{Mode: outbox.SingleNode{
		Dispatch: outbox.DispatchOptions{Workers: 8, HotCapacity: 20, ColdCapacity: 20},
		Poll:     outbox.PollOptions{Interval: time.Millisecond, BatchSize: 7},
	}}, func(_ context.Context, env outbox.Envelope) (outbox.Result, error) {
		if c.add(env.EventID)%2 == 0 {
			runtime.Gosched()
		}
		if env.EventID[len(env.EventID)-1] == '7' {
			<-time.After(time.Millisecond) // a listener that takes its time
		}
		return outbox.Done(), nil
	})
	const writers, each = 8, 250
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for range each {
				e.write(said(""))
			}
		})
	}
	wg.Wait()
	require.Eventually(t, func() bool { n, _ := c.total(); return n == writers*each }, 30*time.Second, time.Millisecond)
	require.NoError(t, e.Close(t.Context()))
	events, deliveries := c.total()
	require.Equal(t, writers*each, events)
	require.Equal(t, writers*each, deliveries, "an event was delivered twice")
}

// visible is a scope that commits its rows at once and runs the callbacks only
// when told: the moment between COMMIT and the hot path, held open.
type visible struct {
	*outboxtest.Scope
	commit []func(context.Context)
}

func (v *visible) OnCommit(fn func()) error {
	return v.AfterCommit(func(context.Context) { fn() })
}

func (v *visible) AfterCommit(fn func(context.Context)) error {
	v.commit = append(v.commit, fn)
	return nil
}

func TestPollerLeavesAnEventAloneBetweenCommitAndHotPath(t *testing.T) {
	t.Parallel()
	var c calls
	e := start(t, outbox.Config{Mode: outbox.SingleNode{Poll: outbox.PollOptions{Interval: time.Hour}}},
		func(_ context.Context, env outbox.Envelope) (outbox.Result, error) {
			c.add(env.EventID)
			return outbox.Done(), nil
		})
	scope := &visible{Scope: outboxtest.NewScope(e.store.DB())}
	_, err := e.Writer().WriteScope(t.Context(), scope, []outbox.Envelope{said("early")})
	require.NoError(t, err)
	row, found := e.store.Row("early")
	require.True(t, found, "the row is visible")
	require.Equal(t, outbox.StatusNew, row.Status)

	e.Wake() // the poller reads the row while the hot path has not got it
	e.write(said("later"))
	e.await("later", outbox.StatusDone)
	e.Wake()
	e.write(said("later still"))
	e.await("later still", outbox.StatusDone)
	require.Equal(t, map[string]int{"later": 1, "later still": 1}, c.n)

	for _, fn := range scope.commit {
		fn(t.Context())
	}
	e.await("early", outbox.StatusDone)
	require.NoError(t, e.Close(t.Context()))
	require.Equal(t, 1, c.n["early"])
}

// paused holds back what Poll read until the test lets it go.
type paused struct {
	*outboxtest.Store
	read    chan outbox.Batch
	proceed chan struct{}
	armed   atomic.Bool
}

func (p *paused) memory() *outboxtest.Store { return p.Store }

func (p *paused) Poll(ctx context.Context, db outbox.DB, q outbox.PollQuery) (outbox.Batch, error) {
	b, err := p.Store.Poll(ctx, db, q)
	if b.Len() > 0 && p.armed.CompareAndSwap(true, false) {
		p.read <- b
		<-p.proceed
	}
	return b, err
}

func TestRowsReadBeforeTheirOutcomeAreNotDeliveredAfterIt(t *testing.T) {
	t.Parallel()
	var c calls
	running, release := make(chan struct{}), make(chan struct{})
	store := &paused{Store: outboxtest.NewStore(), read: make(chan outbox.Batch, 1), proceed: make(chan struct{})}
	e := start(t, outbox.Config{Store: store, Mode: outbox.SingleNode{Poll: outbox.PollOptions{Interval: time.Hour}}},
		func(_ context.Context, env outbox.Envelope) (outbox.Result, error) {
			c.add(env.EventID)
			close(running)
			<-release
			return outbox.Done(), nil
		})
	e.write(said("once"))
	<-running
	store.armed.Store(true)
	e.Wake()
	require.Equal(t, 1, (<-store.read).Len(), "the poller has read the row as NEW")
	close(release)
	e.await("once", outbox.StatusDone)
	close(store.proceed) // and hands it over now that it is DONE
	e.Wake()
	require.NoError(t, e.Close(t.Context()))
	require.Equal(t, map[string]int{"once": 1}, c.n)
}

func TestListenerAnswersBecomeOutcomes(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	type answer func() (outbox.Result, error)
	for name, tc := range map[string]struct {
		answer   answer
		status   outbox.Status
		attempts int
		lastErr  string
		dueIn    [2]time.Duration
	}{
		"done":                   {func() (outbox.Result, error) { return outbox.Done(), nil }, outbox.StatusDone, 0, "", [2]time.Duration{}},
		"retry after":            {func() (outbox.Result, error) { return outbox.RetryAfter(time.Hour), nil }, outbox.StatusNew, 0, "", [2]time.Duration{time.Hour, time.Hour}},
		"dead":                   {func() (outbox.Result, error) { return outbox.Dead("no such order"), nil }, outbox.StatusDead, 0, "no such order", [2]time.Duration{}},
		"unrecoverable":          {func() (outbox.Result, error) { return outbox.Done(), outbox.Unrecoverable(boom) }, outbox.StatusDead, 0, "boom", [2]time.Duration{}},
		"retry after error":      {func() (outbox.Result, error) { return outbox.Done(), outbox.RetryAfterError(time.Hour, boom) }, outbox.StatusRetry, 1, "boom (retry after 1h0m0s)", [2]time.Duration{time.Hour, time.Hour}},
		"error by the policy":    {func() (outbox.Result, error) { return outbox.Done(), boom }, outbox.StatusRetry, 1, "boom", [2]time.Duration{30 * time.Minute, 90 * time.Minute}},
		"error beats the result": {func() (outbox.Result, error) { return outbox.Dead("x"), boom }, outbox.StatusRetry, 1, "boom", [2]time.Duration{30 * time.Minute, 90 * time.Minute}},
		"panic":                  {func() (outbox.Result, error) { panic("oh no") }, outbox.StatusRetry, 1, "panic at engine_test.go:", [2]time.Duration{30 * time.Minute, 90 * time.Minute}},
		"goexit":                 {func() (outbox.Result, error) { runtime.Goexit(); return outbox.Done(), nil }, outbox.StatusRetry, 1, "Goexit", [2]time.Duration{30 * time.Minute, 90 * time.Minute}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answered := make(chan time.Time, 1)
			e := start(t, outbox.Config{
				Mode:        outbox.SingleNode{Dispatch: outbox.DispatchOptions{Workers: 1}, Poll: outbox.PollOptions{Interval: time.Hour}},
				RetryPolicy: outbox.ExponentialBackoff(time.Hour, 2*time.Hour),
			}, func(_ context.Context, env outbox.Envelope) (outbox.Result, error) {
				if env.EventID == "another" {
					return outbox.Done(), nil
				}
				answered <- time.Now()
				return tc.answer()
			})
			e.write(said("one"))
			at := <-answered
			e.write(said("another")) // the worker goes on
			e.await("another", outbox.StatusDone)
			require.NoError(t, e.Close(t.Context()))
			row, found := e.store.Row("one")
			require.True(t, found)
			require.Equal(t, tc.status, row.Status)
			require.Equal(t, tc.attempts, row.Attempts)
			require.Contains(t, row.LastError, tc.lastErr)
			require.Equal(t, tc.status.Terminal(), !row.DoneAt.IsZero())
			if tc.dueIn[1] > 0 {
				require.WithinRange(t, row.AvailableAt, at.Add(tc.dueIn[0]-time.Second), at.Add(tc.dueIn[1]+10*time.Second))
			}
		})
	}
}

func TestMaxAttemptsCountsDeliveries(t *testing.T) {
	t.Parallel()
	var c calls
	e := start(t, outbox.Config{
		Mode:        outbox.SingleNode{Dispatch: outbox.DispatchOptions{MaxAttempts: 3}, Poll: outbox.PollOptions{Interval: time.Hour}},
		RetryPolicy: outbox.RetryPolicyFunc(func(int) time.Duration { return time.Millisecond }),
	}, func(_ context.Context, env outbox.Envelope) (outbox.Result, error) {
		if n := c.add(env.EventID); env.Attempts != n-1 {
			return outbox.Dead("attempts are wrong"), nil
		}
		return outbox.Done(), errors.New("no luck")
	})
	e.write(said("unlucky"))
	row := e.await("unlucky", outbox.StatusDead)
	require.Equal(t, 3, row.Attempts)
	require.Equal(t, "no luck", row.LastError)
	require.Equal(t, 3, c.n["unlucky"])
	letter, err := e.DeadLetters().Get(t.Context(), "unlucky")
	require.NoError(t, err)
	require.Equal(t, 3, letter.Attempts)
	require.Equal(t, "no luck", letter.LastError)
	require.False(t, letter.DiedAt.IsZero())
}

func TestUnroutableEventIsDeadAtOnceOrDeferred(t *testing.T) {
	t.Parallel()
	e := start(t, outbox.Config{}, nil)
	e.write(said("lost"))
	row := e.await("lost", outbox.StatusDead)
	require.Zero(t, row.Attempts)
	require.Equal(t, "unroutable: no listener is registered for __GLOBAL__/Said: register one and replay the dead letter, delete it, or set OnUnroutable to outbox.Defer for a newer process to deliver such events", row.LastError)

	deferring := start(t, outbox.Config{Mode: outbox.SingleNode{Dispatch: outbox.DispatchOptions{OnUnroutable: outbox.Defer(time.Hour)}}}, nil)
	deferring.write(said("patient"))
	require.Eventually(t, func() bool {
		row, _ := deferring.store.Row("patient")
		return time.Until(row.AvailableAt) > 50*time.Minute && row.Status == outbox.StatusNew && row.Attempts == 0
	}, 20*time.Second, time.Millisecond)
}

// At the default interval of 5 s a retry and a delayed event come when they are
// due, not when the table is next looked at.
func TestRetriesAndDelaysDoNotWaitForTheInterval(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		type delivery struct {
			id string
			at time.Time
		}
		got := make(chan delivery, 10)
		e := start(t, outbox.Config{RetryPolicy: outbox.RetryPolicyFunc(func(int) time.Duration { return 200 * time.Millisecond })},
			func(_ context.Context, env outbox.Envelope) (outbox.Result, error) {
				got <- delivery{env.EventID, time.Now()}
				if env.EventID == "retried" && env.Attempts == 0 {
					return outbox.Done(), errors.New("once")
				}
				return outbox.Done(), nil
			})
		time.Sleep(time.Second) // the poller is asleep
		began := time.Now()
		late := said("delayed")
		late.DeliverAfter = 1500 * time.Millisecond
		e.write(said("retried"), late)
		want := []struct {
			id string
			in time.Duration
		}{{"retried", 0}, {"retried", 200 * time.Millisecond}, {"delayed", 1500 * time.Millisecond}}
		for _, w := range want {
			d := <-got
			require.Equal(t, w.id, d.id)
			require.WithinRange(t, d.at, began.Add(w.in), began.Add(w.in+50*time.Millisecond), w.id)
		}
		synctest.Wait()
		require.NoError(t, e.Close(t.Context()))
	})
}

// A delayed event that another process wrote is known from the table alone.
func TestDelayedEventOfAnotherProcessComesInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := outboxtest.NewStore()
		other := build(t, outbox.Config{Store: store, Mode: outbox.WriterOnly{}}, nil)
		late := said("delayed")
		late.DeliverAfter = 2 * time.Second
		began := time.Now()
		other.write(late)
		at := make(chan time.Time, 1)
		e := start(t, outbox.Config{Store: store}, func(context.Context, outbox.Envelope) (outbox.Result, error) {
			at <- time.Now()
			return outbox.Done(), nil
		})
		require.WithinRange(t, <-at, began.Add(2*time.Second), began.Add(2050*time.Millisecond))
		synctest.Wait()
		require.NoError(t, e.Close(t.Context()))
	})
}

func TestBacklogDrainsWithoutTheInterval(t *testing.T) {
	t.Parallel()
	store := outboxtest.NewStore()
	other := build(t, outbox.Config{Store: store, Mode: outbox.WriterOnly{}}, nil)
	const n = 5000
	envs := make([]outbox.Envelope, n)
	for i := range envs {
		envs[i] = said("")
	}
	other.write(envs...)
	var c calls
	e := start(t, outbox.Config{Store: store, Mode: outbox.SingleNode{
		Dispatch: outbox.DispatchOptions{ColdCapacity: 50}, Poll: outbox.PollOptions{Interval: time.Hour, BatchSize: 30},
	}}, func(_ context.Context, env outbox.Envelope) (outbox.Result, error) {
		c.add(env.EventID)
		return outbox.Done(), nil
	})
	require.Eventually(t, func() bool { done, _ := c.total(); return done == n }, 30*time.Second, time.Millisecond)
	require.NoError(t, e.Close(t.Context()))
	_, deliveries := c.total()
	require.Equal(t, n, deliveries)
}

func TestWhatOverflowsTheHotQueueComesFromTheTable(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]outbox.Mode{
		"single node": outbox.SingleNode{Dispatch: outbox.DispatchOptions{HotCapacity: 3, ColdCapacity: 4}, Poll: outbox.PollOptions{Interval: time.Hour}},
		"multi node":  outbox.MultiNode{Dispatch: outbox.DispatchOptions{HotCapacity: 3, ColdCapacity: 4}, Poll: outbox.PollOptions{Interval: time.Hour}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var c calls
			e := start(t, outbox.Config{Mode: mode}, func(_ context.Context, env outbox.Envelope) (outbox.Result, error) {
				c.add(env.EventID)
				return outbox.Done(), nil
			})
			const n = 500
			for range n / 5 {
				e.write(said(""), said(""), said(""), said(""), said(""))
			}
			require.Eventually(t, func() bool { done, _ := c.total(); return done == n }, 30*time.Second, time.Millisecond)
			require.NoError(t, e.Close(t.Context()))
			_, deliveries := c.total()
			require.Equal(t, n, deliveries)
		})
	}
}

// Two hot events to one cold one while both queues hold some.
func TestWorkersTakeTwoHotToOneCold(t *testing.T) {
	t.Parallel()
	store := outboxtest.NewStore()
	routes := outbox.NewRegistry()
	gate := make(chan struct{})
	order := make(chan string, 100)
	require.NoError(t, routes.Register(outbox.On("", "Said", outbox.Handle(func(_ context.Context, env outbox.Envelope) error {
		<-gate
		order <- env.EventID[:1]
		return nil
	}))))
	d, err := outbox.NewDispatcher(outbox.DispatcherConfig{DB: store.DB(), Store: store, Registry: routes, Options: outbox.DispatchOptions{Workers: 1}, Logger: quiet})
	require.NoError(t, err)
	require.NoError(t, d.Start(t.Context()))
	for i := range 12 {
		for _, queue := range []string{"h", "c"} {
			env := said(fmt.Sprint(queue, i))
			env.AggregateType = outbox.Global
			if queue == "h" {
				require.True(t, d.EnqueueHot(env))
			} else {
				require.True(t, d.Handle(env))
			}
		}
	}
	close(gate)
	require.NoError(t, d.Close(t.Context()))
	close(order)
	var got string
	for queue := range order {
		got += queue
	}
	require.Len(t, got, 24)
	// The first may be either, for the worker began while the queues filled.
	require.Contains(t, got[:18], "hhchhchhchhc", got)
}
