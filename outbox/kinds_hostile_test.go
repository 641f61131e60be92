package outbox_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

func keyed(id string, delay time.Duration) outbox.Envelope {
	env := said(id)
	env.UniqueKey, env.DeliverAfter = "key", delay
	return env
}

// A key does not outlive its event, also if no listener ever got the event.
func TestAUniqueKeyIsFreeWhenItsEventHasExpired(t *testing.T) {
	t.Parallel()
	for _, drop := range []bool{false, true} {
		inModes(t, outbox.DispatchOptions{}, func(t *testing.T, mode outbox.Mode) {
			var got ids
			e := rulesFor(t, outbox.Config{Mode: mode}, outbox.Rules{Expires: time.Minute, DropExpired: drop}, func(_ context.Context, env outbox.Envelope) error {
				got.add(env)
				return nil
			})
			require.Equal(t, []string{"a"}, e.write(keyed("a", 2*time.Minute)))
			pass(90 * time.Second)
			require.Equal(t, []string{"a"}, e.write(keyed("b", 0)), "the event has expired, and its row is still pending")
			pass(31 * time.Second)
			require.Equal(t, []string{"c"}, e.write(keyed("c", 0)))
			pass(time.Second)
			require.Equal(t, []string{"c"}, got.all())
		})
	}
}

// The listener whose retry comes too late has a dead letter; the other has its event.
func TestTheRowOfAListenerExpires(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var good, bad ids
		rules := outbox.Rules{Expires: time.Minute, RetryPolicy: outbox.RetryPolicyFunc(func(int) time.Duration { return 45 * time.Second })}
		e := build(t, outbox.Config{Mode: outbox.SingleNode{}}, nil)
		require.NoError(t, e.Register(
			outbox.On("", "Said", outbox.ListenerFunc(func(_ context.Context, env outbox.Envelope) error { good.add(env); return nil }), outbox.Named("good"), rules),
			outbox.On("", "Said", outbox.ListenerFunc(func(_ context.Context, env outbox.Envelope) error { bad.add(env); return errDown }), outbox.Named("bad"), rules),
		))
		require.NoError(t, e.Start(t.Context()))
		e.write(said("a"))
		pass(10 * time.Minute)
		require.Len(t, good.all(), 1)
		require.Len(t, bad.all(), 2)
		require.Equal(t, map[outbox.Status]int{outbox.StatusDone: 1, outbox.StatusDead: 1}, statuses(e.store))
		page, err := e.DeadLetters().Find(t.Context(), outbox.DeadQuery{Limit: 10})
		require.NoError(t, err)
		require.Equal(t, expiredText, page.Rows[0].LastError)
		require.Equal(t, 2, page.Rows[0].Attempts)
	})
}

// A receiver that is down gets a single call in the Drains of a minute, and no event has an attempt.
func TestAReceiverIsDownInADrain(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, mode outbox.Mode) {
		var up atomic.Bool
		var called atomic.Int32
		e := build(t, outbox.Config{Mode: mode}, func(context.Context, outbox.Envelope) error {
			if called.Add(1); up.Load() {
				return nil
			}
			return outbox.PauseFor(time.Minute, errDown)
		})
		e.write(numbered("a", 10)...)
		for range 5 {
			got := e.drain(100)
			require.False(t, got.More, "a loop over More would not end")
			require.Zero(t, got.Done+got.Failed+got.Dead)
			leavesNothing(t, e.store)
			time.Sleep(10 * time.Second)
		}
		require.LessOrEqual(t, called.Load(), int32(10), "at most one call for each worker that had begun")
		before := called.Load()
		up.Store(true)
		time.Sleep(11 * time.Second)
		require.Equal(t, 10, e.drain(100).Done)
		require.Equal(t, before+10, called.Load())
		requireNoAttempts(t, e.store)
	})
}

// Events that expired count towards the most events of a Drain, which goes on until none is left.
func TestADrainEndsBehindExpiredEvents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var got ids
		store := outboxtest.NewStore()
		for _, id := range []string{"a", "b", "c", "d", "e"} {
			insertDue(t, store, id, -time.Hour)
		}
		e := build(t, outbox.Config{Store: store, Mode: outbox.MultiNode{}}, nil)
		require.NoError(t, e.Register(outbox.On("", "Said", outbox.ListenerFunc(func(_ context.Context, env outbox.Envelope) error {
			got.add(env)
			return nil
		}), outbox.Rules{Expires: time.Minute, DropExpired: true})))
		e.write(said("young"))
		require.Equal(t, outbox.Drained{Left: 4, More: true}, e.drain(2))
		require.Equal(t, outbox.Drained{Left: 2, More: true}, e.drain(2))
		require.Equal(t, outbox.Drained{Done: 1, More: true}, e.drain(2))
		require.Equal(t, outbox.Drained{}, e.drain(2))
		require.Equal(t, []string{"young"}, got.all())
		leavesNothing(t, store)
	})
}

// Events that were kept out leave nothing behind: no place in the hot queue, no lease, and no key after
// a rollback.
func TestAnEventThatWasKeptOutLeavesNothing(t *testing.T) {
	t.Parallel()
	inModes(t, outbox.DispatchOptions{HotCapacity: 4}, func(t *testing.T, mode outbox.Mode) {
		var got ids
		e := rulesFor(t, outbox.Config{Mode: mode}, outbox.Rules{}, func(_ context.Context, env outbox.Envelope) error {
			got.add(env)
			return nil
		})
		scope := outboxtest.NewScope(e.store.DB())
		ids, err := e.Writer().WriteScope(t.Context(), scope, []outbox.Envelope{keyed("r", 0), keyed("r2", 0)})
		require.NoError(t, err)
		require.Equal(t, []string{"r", "r"}, ids)
		require.NoError(t, scope.Rollback(nil))
		for range 20 {
			id := e.write(keyed("", 0), keyed("", 0), said(""), keyed("", 0))
			require.Equal(t, []string{id[0], id[0], id[0]}, []string{id[0], id[1], id[3]})
			pass(time.Second)
		}
		require.Len(t, got.all(), 40)
		require.NoError(t, e.Close(context.Background()))
		leavesNothing(t, e.store)
		require.Equal(t, map[outbox.Status]int{outbox.StatusDone: 40}, statuses(e.store))
	})
}
