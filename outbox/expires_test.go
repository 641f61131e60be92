package outbox_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// endings counts the events that expired, died or were delivered.
type endings struct {
	outcomeCounts
	expired int
}

func (l *endings) Expired(outbox.EventKind) { l.count(&l.expired, 1) }

func (l *endings) require(t *testing.T, delivered, died, expired int) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	require.Equal(t, [...]int{delivered, died, expired}, [...]int{l.delivered, l.died, l.expired}, "delivered, died, expired")
}

// ids writes down the events that a listener gets.
type ids struct {
	mu  sync.Mutex
	got []string
}

func (i *ids) add(env outbox.Envelope) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.got = append(i.got, env.EventID)
}

func (i *ids) all() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.got
}

const expiredText = "expired: not delivered within 1m0s after it occurred"

// Old events are written at the start; the hot path delivers at once, and the poller delivers the
// events that another process wrote.
func TestAnEventIsDeliveredUntilItExpires(t *testing.T) {
	t.Parallel()
	for _, drop := range []bool{false, true} {
		inModes(t, outbox.DispatchOptions{}, func(t *testing.T, mode outbox.Mode) {
			var got ids
			metrics := &endings{}
			store := outboxtest.NewStore()
			insertDue(t, store, "late", -time.Minute-time.Microsecond)
			insertDue(t, store, "just", -time.Minute)
			e := rulesFor(t, outbox.Config{Store: store, Mode: mode, Metrics: metrics}, outbox.Rules{Expires: time.Minute, DropExpired: drop}, func(_ context.Context, env outbox.Envelope) error {
				got.add(env)
				return nil
			})
			hot := said("hot")
			hot.OccurredAt = time.Now().Add(-time.Minute - time.Microsecond)
			e.write(hot, said("young"))
			pass(time.Second)
			require.ElementsMatch(t, []string{"just", "young"}, got.all())
			require.NoError(t, e.Close(context.Background()))
			if drop {
				metrics.require(t, 2, 0, 2)
				require.Equal(t, map[outbox.Status]int{outbox.StatusDone: 2}, statuses(store))
				return
			}
			metrics.require(t, 2, 2, 2)
			for _, id := range []string{"late", "hot"} {
				row, _ := store.Row(id)
				require.Equal(t, outbox.StatusDead, row.Status)
				require.Equal(t, expiredText, row.LastError)
				require.Zero(t, row.Attempts)
			}
		})
	}
}

// A retry that becomes due too late, an event behind the rate, and an event that waits for its batch
// or for a call are not delivered.
func TestAnEventThatExpiresWhileItWaitsIsNotDelivered(t *testing.T) {
	t.Parallel()
	rules := outbox.Rules{Expires: time.Minute}
	hold := func(got *ids, env outbox.Envelope) error {
		got.add(env)
		time.Sleep(45 * time.Second)
		return nil
	}
	limited := func(r outbox.Rules) outbox.Rules {
		r.Expires = rules.Expires
		return r
	}
	for name, c := range map[string]struct {
		dispatch outbox.DispatchOptions
		rules    outbox.Rules
		batch    *outbox.BatchOptions
		answer   func(got *ids, env outbox.Envelope) error
		want     []string
	}{
		"a worker":        {dispatch: outbox.DispatchOptions{Workers: 1}, rules: rules, answer: hold, want: []string{"a", "b"}},
		"a shared worker": {dispatch: outbox.DispatchOptions{SharedWorkers: outbox.NewSharedWorkers(1), Workers: 4}, rules: rules, answer: hold, want: []string{"a", "b"}},
		"a lane":          {rules: limited(outbox.Rules{Concurrency: 1}), answer: hold, want: []string{"a", "b"}},
		"a call":          {batch: &outbox.BatchOptions{Size: 1}, rules: rules, answer: hold, want: []string{"a", "b"}},
		"a token": {rules: limited(outbox.Rules{Rate: 1. / 45, Burst: 1}), answer: func(got *ids, env outbox.Envelope) error {
			got.add(env)
			return nil
		}, want: []string{"a", "b"}},
		"a batch": {batch: &outbox.BatchOptions{Size: 10, Wait: 2 * time.Minute}, rules: rules, answer: hold},
		"a retry": {rules: limited(outbox.Rules{RetryPolicy: outbox.RetryPolicyFunc(func(int) time.Duration { return 45 * time.Second })}), answer: func(got *ids, env outbox.Envelope) error {
			got.add(env)
			return errDown
		}, want: []string{"a", "a", "b", "b", "c", "c"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var got ids
				if c.dispatch.SharedWorkers != nil {
					c.dispatch.SharedWorkers = outbox.NewSharedWorkers(1) // of this bubble
				}
				e := build(t, outbox.Config{Mode: outbox.SingleNode{Dispatch: c.dispatch}}, nil)
				var l outbox.Listener = outbox.ListenerFunc(func(_ context.Context, env outbox.Envelope) error { return c.answer(&got, env) })
				if c.batch != nil {
					l = outbox.BatchListener(*c.batch, func(_ context.Context, batch []outbox.Envelope) ([]error, error) {
						return nil, c.answer(&got, batch[0])
					})
				}
				require.NoError(t, e.Register(outbox.On("", "Said", l, c.rules)))
				require.NoError(t, e.Start(t.Context()))
				for _, id := range []string{"a", "b", "c"} {
					e.write(said(id))
					pass(time.Millisecond)
				}
				pass(10 * time.Minute)
				require.ElementsMatch(t, c.want, got.all())
				for _, id := range []string{"a", "b", "c"} {
					if row, _ := e.store.Row(id); row.Status != outbox.StatusDone {
						require.Equal(t, outbox.StatusDead, row.Status)
						require.Equal(t, expiredText, row.LastError)
					}
				}
			})
		})
	}
}

// A backlog of expired events needs no tokens: the events behind it do not expire too.
func TestExpiredEventsNeedNoToken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var got ids
		store := outboxtest.NewStore()
		for _, id := range named("old", 500) {
			insertDue(t, store, id, -time.Hour)
		}
		insertDue(t, store, "young", 0)
		e := rulesFor(t, outbox.Config{Store: store}, outbox.Rules{Expires: time.Minute, Rate: 0.1, Burst: 1}, func(_ context.Context, env outbox.Envelope) error {
			got.add(env)
			return nil
		})
		pass(30 * time.Second)
		require.Equal(t, []string{"young"}, got.all())
		require.Equal(t, 500, statuses(e.store)[outbox.StatusDead])
	})
}

// In a run of OrderedByKey a DEAD event blocks its key; a dropped event does not.
func TestAnExpiredEventAndItsKey(t *testing.T) {
	t.Parallel()
	for name, drop := range map[string]bool{"dead": false, "dropped": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var d diary
				envs := numbered("a", 3)
				envs[1].OccurredAt, envs[1].EventType = time.Now().Add(time.Microsecond), "Short"
				envs[2].OccurredAt = time.Now().Add(2 * time.Microsecond)
				e := build(t, byKey(outbox.OrderedByKey{}), d.listen(func(outbox.Envelope) error {
					time.Sleep(time.Second) // the next event of the run expires
					return nil
				}))
				require.NoError(t, e.Register(outbox.On(envs[1].AggregateType, "Short", outbox.ListenerFunc(d.listen(nil)), outbox.Rules{Expires: 500 * time.Millisecond, DropExpired: drop})))
				e.write(envs...)
				require.NoError(t, e.Start(t.Context()))
				pass(time.Minute)
				want := []string{"a-00000"}
				if drop {
					want = append(want, "a-00002")
				}
				require.Equal(t, want, d.of("a"))
				row, found := e.store.Row("a-00001")
				require.Equal(t, !drop, found)
				require.True(t, drop || row.Status == outbox.StatusDead)
			})
		})
	}
}

// With several listeners the whole event expires, and so do their own rows.
func TestAnEventOfSeveralListenersExpiresForAll(t *testing.T) {
	t.Parallel()
	inModes(t, outbox.DispatchOptions{}, func(t *testing.T, mode outbox.Mode) {
		var h hearing
		a, b := h.on("a", failsTimes(100)), h.on("b", succeeds)
		a.Rules = outbox.Rules{Expires: time.Minute, MaxAttempts: outbox.Endless}
		metrics := &endings{}
		e := startNamed(t, outbox.Config{Mode: mode, Metrics: metrics, RetryPolicy: outbox.RetryPolicyFunc(func(int) time.Duration { return 40 * time.Second })}, a, b)
		late := said("late")
		late.OccurredAt = time.Now().Add(-time.Hour)
		e.write(late, said("e"))
		pass(time.Hour)
		require.Equal(t, []string{"a e/0", "b e/0", "a e/1"}, h.all())
		require.Equal(t, expiredText, rowsBy(e.store)["a"].LastError)
		require.Equal(t, 2, rowsBy(e.store)["a"].Attempts, "the failures alone")
		require.NoError(t, e.Close(context.Background()))
		metrics.require(t, 1, 2, 2)
	})
}

// In Ordered the next event follows.
func TestAnExpiredEventInOrdered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var got ids
		e := rulesFor(t, outbox.Config{Mode: outbox.Ordered{Poll: outbox.PollOptions{Interval: time.Second}}}, outbox.Rules{Expires: time.Minute}, func(_ context.Context, env outbox.Envelope) error {
			got.add(env)
			return nil
		})
		late := said("late")
		late.OccurredAt = time.Now().Add(-time.Hour)
		e.write(late, said("e"))
		pass(time.Minute)
		require.Equal(t, []string{"e"}, got.all())
		require.Equal(t, map[outbox.Status]int{outbox.StatusDead: 1, outbox.StatusDone: 1}, statuses(e.store))
	})
}

// Deliver says that an expired event was dropped.
func TestDeliverOfAnExpiredEvent(t *testing.T) {
	t.Parallel()
	e := build(t, outbox.Config{}, nil)
	require.NoError(t, e.Register(outbox.On("", "Said", outbox.ListenerFunc(handled), outbox.Rules{Expires: time.Minute, DropExpired: true})))
	late := said("late")
	late.OccurredAt = time.Now().Add(-time.Hour)
	e.write(late)
	row, _ := e.store.Row("late")
	result, err := e.Deliver(t.Context(), row.Envelope)
	require.NoError(t, err)
	require.Equal(t, outbox.StatusDone, result.Status)
	require.EqualError(t, result.Err, expiredText)
	require.Empty(t, e.store.Rows())
}
