package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// breaking are the modes that deliver, in which the kind has rules.
func breaking(rules outbox.Rules) map[string]outbox.Mode {
	dispatch := outbox.DispatchOptions{Rules: map[outbox.EventKind]outbox.Rules{kindSaid: rules}}
	return map[string]outbox.Mode{
		"single":  outbox.SingleNode{Poll: rarely, Dispatch: dispatch},
		"multi":   outbox.MultiNode{Poll: rarely, Dispatch: dispatch},
		"by key":  outbox.OrderedByKey{Poll: rarely, Dispatch: dispatch},
		"ordered": outbox.Ordered{Poll: outbox.PollOptions{Interval: 7 * time.Second}, Rules: dispatch.Rules},
	}
}

// requirePause checks the only pause: its reason, and how long it still lasts.
func (e *engine) requirePause(reason string, left time.Duration) {
	e.t.Helper()
	list, err := e.Paused(e.t.Context())
	require.NoError(e.t, err)
	require.Len(e.t, list, 1)
	require.True(e.t, list[0].Automatic)
	require.Equal(e.t, reason, list[0].Reason)
	require.InDelta(e.t, left, time.Until(list[0].Until), float64(500*time.Millisecond))
}

// The receiver is down for ten minutes. A probe follows each pause, which is twice as long as the pause
// before; a success ends that.
func TestFailuresInARowPauseTheirKind(t *testing.T) {
	t.Parallel()
	for name, mode := range breaking(outbox.Rules{Breaker: outbox.Breaker{Failures: 3, Pause: 10 * time.Second}}) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store, logs := newAsked(), &logbook{}
				var up atomic.Bool
				var made atomic.Int32
				e := start(t, outbox.Config{Store: store, Mode: mode, Logger: slog.New(logs)}, func(context.Context, outbox.Envelope) error {
					made.Add(1)
					if !up.Load() {
						return errors.New("connection refused")
					}
					return nil
				})
				for i := range 30 { // one after the other, so that few fail together
					e.write(said(fmt.Sprint("e", i)))
					pass(time.Millisecond)
				}
				e.Wake()
				pass(8 * time.Second)
				require.EqualValues(t, 3, made.Swap(0))
				list, err := e.Paused(t.Context())
				require.NoError(t, err)
				require.Len(t, list, 1)
				require.Equal(t, "3 deliveries in a row failed: connection refused", list[0].Reason)
				require.True(t, list[0].Automatic)
				require.Contains(t, list[0].By, "vm-")
				require.Len(t, logs.about("failures in a row paused their kind"), 1)
				for _, pause := range []time.Duration{20, 40, 80, 100, 100} {
					left := time.Until(list[0].Until)
					pass(left + 100*time.Millisecond)
					require.EqualValues(t, 1, made.Swap(0), "the probe")
					e.requirePause("the first delivery after a pause failed: connection refused", pause*time.Second)
					list, _ = e.Paused(t.Context())
				}
				up.Store(true)
				pass(3 * time.Minute)
				list, err = e.Paused(t.Context())
				require.NoError(t, err)
				require.Empty(t, list)
				for _, row := range store.Rows() {
					if name != "ordered" || row.Status != outbox.StatusDead {
						require.Equal(t, outbox.StatusDone, row.Status)
					}
				}
				up.Store(false)
				for i := range 3 {
					e.write(said(fmt.Sprint("f", i)))
				}
				e.Wake()
				pass(3 * time.Second)
				e.requirePause("3 deliveries in a row failed: connection refused", 10*time.Second-timeSincePause(t, e))
			})
		})
	}
}

// timeSincePause is how long the only pause has lasted.
func timeSincePause(t *testing.T, e *engine) time.Duration {
	t.Helper()
	list, err := e.Paused(t.Context())
	require.NoError(t, err)
	require.Len(t, list, 1)
	return time.Since(list[0].Since)
}

// Workers that fail together make a single pause, however many there are, and it is not longer.
func TestWorkersThatFailTogetherMakeOnePause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newAsked()
		mode := breaking(outbox.Rules{Breaker: outbox.Breaker{Failures: 4, Pause: time.Minute}})["multi"]
		e := start(t, outbox.Config{Store: store, Mode: mode}, func(_ context.Context, env outbox.Envelope) error {
			time.Sleep(time.Second)
			if env.EventID == "e00000" {
				time.Sleep(2 * time.Second)
				return nil // a late success ends no pause
			}
			return errors.New("down")
		})
		several(e, 40, "e", "Said")
		pass(5 * time.Second)
		e.requirePause("4 deliveries in a row failed: down", 56*time.Second)
		require.EqualValues(t, 1, store.written.Load())
		attempts := 0
		for _, row := range e.store.Rows() {
			attempts += row.Attempts
		}
		require.LessOrEqual(t, attempts, 15+3, "a call for each worker, and another for the three that failed first")
	})
}

// A success between failures ends the row; an event that is wrong does not.
func TestWhatCountsAsAFailureInARow(t *testing.T) {
	t.Parallel()
	down := errors.New("down")
	for name, c := range map[string]struct {
		answers []error
		paused  bool
	}{
		"three failures":          {[]error{down, down, down}, true},
		"a success between":       {[]error{down, down, nil, down, down}, false},
		"a wrong event between":   {[]error{down, outbox.Dead(down), down, outbox.Dead(down), down}, true},
		"a deferral between":      {[]error{down, down, outbox.Defer(time.Hour), down}, true},
		"only wrong events":       {[]error{outbox.Dead(down), outbox.Dead(down), outbox.Dead(down), outbox.Dead(down)}, false},
		"only deferrals":          {[]error{outbox.Defer(time.Hour), outbox.Defer(time.Hour), outbox.Defer(time.Hour)}, false},
		"retries with a delay":    {[]error{outbox.RetryIn(time.Hour, down), outbox.RetryIn(time.Hour, down), outbox.RetryIn(time.Hour, down)}, true},
		"the last of its attempt": {[]error{down, down, fmt.Errorf("again: %w", down)}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				calls := 0
				mode := breaking(outbox.Rules{
					Breaker:     outbox.Breaker{Failures: 3},
					RetryPolicy: outbox.RetryPolicyFunc(func(int) time.Duration { return time.Hour }),
				})["single"]
				e := start(t, outbox.Config{Mode: mode}, func(context.Context, outbox.Envelope) error {
					calls++
					return c.answers[calls-1]
				})
				for i := range c.answers {
					e.write(said(fmt.Sprint("e", i)))
					pass(100 * time.Millisecond)
				}
				pass(time.Second)
				list, err := e.Paused(t.Context())
				require.NoError(t, err)
				require.Equal(t, c.paused, len(list) == 1)
				if c.paused {
					require.InDelta(t, 30*time.Second, list[0].Until.Sub(list[0].Since), float64(time.Second), "the default")
				}
			})
		})
	}
}

// Resume ends the pause of a breaker. A delivery that fails then pauses the kind again.
func TestResumeEndsThePauseOfABreaker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		mode := breaking(outbox.Rules{Breaker: outbox.Breaker{Failures: 2, Pause: time.Hour}})["single"]
		e := start(t, outbox.Config{Mode: mode}, func(context.Context, outbox.Envelope) error {
			calls++
			return errors.New("down")
		})
		e.write(said("a"))
		pass(2 * time.Second)
		require.Equal(t, 2, calls)
		require.NoError(t, e.Resume(t.Context(), kindSaid))
		pass(2 * time.Second)
		require.Equal(t, 3, calls)
		e.requirePause("3 deliveries in a row failed: down", 2*time.Hour-timeSincePause(t, e))
	})
}

// A process that has failed less often pauses the kind again all the same when its probe fails.
func TestAProbeThatFailsInAnotherProcessPausesTheKindAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := outboxtest.NewStore()
		rules := outbox.Rules{Breaker: outbox.Breaker{Failures: 5, Pause: 10 * time.Second}}
		var made [2]atomic.Int32
		var es [2]*engine
		for i := range es {
			es[i] = start(t, outbox.Config{Store: store, Mode: outbox.MultiNode{
				Claim:    outbox.ClaimOptions{Owner: fmt.Sprint("node-", i)},
				Dispatch: outbox.DispatchOptions{Rules: map[outbox.EventKind]outbox.Rules{kindSaid: rules}},
			}}, func(context.Context, outbox.Envelope) error {
				made[i].Add(1)
				return errors.New("down")
			})
		}
		several(es[0], 20, "a", "Said")
		pass(6 * time.Second) // the other process has read the pause
		require.NoError(t, es[0].Close(context.Background()))
		made[1].Store(0)
		several(es[1], 20, "b", "Said")
		pass(9 * time.Second)
		require.EqualValues(t, 1, made[1].Load(), "the probe")
		list, err := es[1].Paused(t.Context())
		require.NoError(t, err)
		require.Len(t, list, 1)
		require.Equal(t, "the first delivery after a pause failed: down", list[0].Reason)
	})
}

func TestABreakerThatCannotApplyIsRefused(t *testing.T) {
	t.Parallel()
	store := outboxtest.NewStore()
	_, err := outbox.New(outbox.Config{DB: store.DB(), Store: store, Mode: outbox.SingleNode{Dispatch: outbox.DispatchOptions{Rules: map[outbox.EventKind]outbox.Rules{
		kindSaid:         {Breaker: outbox.Breaker{Failures: -1, Pause: time.Millisecond}},
		{EventType: "b"}: {Breaker: outbox.Breaker{Failures: 2_000_000, Pause: 25 * time.Hour}},
	}}}})
	for _, want := range []string{
		"Rules[__GLOBAL__/Said].Breaker.Failures is -1; it must not be negative",
		"Rules[__GLOBAL__/Said].Breaker.Pause is 1ms; it must be from 1s to 24h0m0s, or zero for 30s",
		"Rules[__GLOBAL__/b].Breaker.Failures is 2000000; the limit is 1000000",
		"Rules[__GLOBAL__/b].Breaker.Pause is 25h0m0s; it must be from 1s to 24h0m0s",
	} {
		require.ErrorContains(t, err, want)
	}

	e := build(t, outbox.Config{Mode: breaking(outbox.Rules{Breaker: outbox.Breaker{Pause: time.Minute}})["single"]}, handled)
	require.ErrorContains(t, e.Start(t.Context()), "Rules[__GLOBAL__/Said].Breaker.Pause is 1m0s, but nothing says how many failures; set Breaker.Failures too")

	e = build(t, outbox.Config{}, nil)
	require.NoError(t, e.Register(
		outbox.On("", "Said", outbox.ListenerFunc(handled), outbox.Named("mail"), outbox.Rules{Breaker: outbox.Breaker{Failures: 3}}),
		outbox.On("", "Said", outbox.ListenerFunc(handled), outbox.Named("search")),
	))
	require.ErrorContains(t, e.Start(t.Context()), "Binding[__GLOBAL__/Said mail].Rules.Breaker.Failures is 3, but the listeners of the kind have names")
}

func TestABreakerOfKeysIsRefusedWhereTheOrderCounts(t *testing.T) {
	t.Parallel()
	for name, mode := range breaking(outbox.Rules{Breaker: outbox.Breaker{Failures: 3, PerKey: true}}) {
		store := outboxtest.NewStore()
		_, err := outbox.New(outbox.Config{DB: store.DB(), Store: store, Mode: mode})
		switch name {
		case "by key":
			require.ErrorContains(t, err, "Breaker.PerKey is true, but in OrderedByKey an event that fails holds back its key")
		case "ordered":
			require.ErrorContains(t, err, "Breaker.PerKey is true, but events that wait because of their key would lose their place in the order")
		default:
			require.NoError(t, err)
		}
	}
}
