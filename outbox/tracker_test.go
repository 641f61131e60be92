package outbox_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// An id that the caller chose is written again while its event is in hand. That
// fails, and the event stays in hand.
func TestAnEventInHandStaysThereWhenItsIDIsWrittenAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		e := start(t, outbox.Config{Mode: outbox.SingleNode{}}, func(context.Context, outbox.Envelope) error {
			calls.Add(1)
			time.Sleep(time.Minute)
			return nil
		})
		e.write(said("e"))
		time.Sleep(time.Second)
		_, err := e.Writer().WriteScope(t.Context(), outboxtest.NewScope(e.store.DB()), []outbox.Envelope{said("e")})
		require.ErrorContains(t, err, "e")
		time.Sleep(5 * time.Minute)
		require.EqualValues(t, 1, calls.Load())
	})
}

// leisurely is a store whose answers to Poll take half a second.
type leisurely struct{ *outboxtest.Store }

func (s leisurely) memory() *outboxtest.Store { return s.Store }

func (s leisurely) Poll(ctx context.Context, db outbox.DB, q outbox.PollQuery) (outbox.Batch, error) {
	b, err := s.Store.Poll(ctx, db, q)
	time.Sleep(500 * time.Millisecond)
	return b, err
}

// An event that left the tracker during a poll is dropped by that poll only.
func TestAFailureThatIsStoredDuringAReadIsTriedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		e := start(t, outbox.Config{Store: leisurely{outboxtest.NewStore()}}, func(context.Context, outbox.Envelope) error {
			calls.Add(1)
			return outbox.RetryIn(2*time.Second, errors.New("boom"))
		})
		time.Sleep(time.Minute)
		e.Wake()
		synctest.Wait() // it reads
		e.write(said("e"))
		time.Sleep(7 * time.Second)
		require.GreaterOrEqual(t, calls.Load(), int64(2))
	})
}

// The outcome of a failure cannot be stored for longer than a lease lasts: no other
// node delivers the event meanwhile.
func TestALeaseIsRenewedWhileAFailureIsBeingStored(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &stuck{Store: outboxtest.NewStore()}
		store.locked.Store(true)
		var calls atomic.Int64
		fail := func(context.Context, outbox.Envelope) error {
			calls.Add(1)
			return outbox.RetryIn(24*time.Hour, errors.New("boom"))
		}
		first := start(t, outbox.Config{Store: store, Mode: outbox.MultiNode{}}, fail)
		start(t, outbox.Config{Store: store.Store, Mode: outbox.MultiNode{}}, fail)
		first.write(said("locked"))
		time.Sleep(3 * outbox.DefaultLeaseDuration)
		store.locked.Store(false)
		time.Sleep(time.Minute)
		require.EqualValues(t, 1, calls.Load())
		row, _ := store.Row("locked")
		require.Equal(t, outbox.StatusRetry, row.Status)
	})
}

// While no outcome can be stored, listeners are called for a bounded number of
// events, however many there are.
func TestAnOutageDoesNotGatherOutcomesWithoutEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &outage{Store: written(t, named("e", 5000)...)}
		store.begin()
		var calls atomic.Int64
		e := start(t, outbox.Config{Store: store}, func(context.Context, outbox.Envelope) error {
			calls.Add(1)
			return nil
		})
		time.Sleep(outageLasts)
		// In two statements, waiting for one, set aside, and one with each worker.
		require.LessOrEqual(t, calls.Load(), int64(2*1000+1000+500+16))
		time.Sleep(2 * time.Minute)
		require.Equal(t, map[outbox.Status]int{outbox.StatusDone: 5000}, statuses(store.Store))
		require.EqualValues(t, 5000, calls.Load())
		require.NoError(t, e.Close(context.Background()))
	})
}

// A transaction with an early time commits late, while a backlog is being read.
func TestABacklogDoesNotHideAnEarlierEventThatIsCommittedLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		order := make(chan string, 200)
		store := written(t, named("e", 100)...)
		start(t, outbox.Config{Store: store, Mode: outbox.SingleNode{
			Dispatch: outbox.DispatchOptions{Workers: 1, ColdCapacity: 4}, Poll: outbox.PollOptions{BatchSize: 2},
		}}, func(_ context.Context, env outbox.Envelope) error {
			order <- env.EventID
			time.Sleep(time.Second)
			return nil
		})
		time.Sleep(3500 * time.Millisecond)
		late := said("late")
		late.OccurredAt = time.Now().Add(-time.Hour)
		build(t, outbox.Config{Store: store, Mode: outbox.WriterOnly{}}, nil).write(late)
		time.Sleep(5*time.Second + 10*time.Second)
		var taken []string
		for range len(order) {
			taken = append(taken, <-order)
		}
		require.Equal(t, named("e", 4), taken[:4])
		require.Contains(t, taken, "late")
		require.Less(t, len(taken), 20)
	})
}

// Events that the poller has to read do not wait for its interval.
func TestThePollerIsWokenForEventsThatItHasToRead(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		envs  []outbox.Envelope
		first error
	}{
		"what the hot queue has no room for": {[]outbox.Envelope{said("1"), said("2"), said("3"), said("4")}, nil},
		"a delayed event":                    {[]outbox.Envelope{{EventType: "Said", Payload: outbox.JSON(1), DeliverAfter: 200 * time.Millisecond}}, nil},
		"a deferred event":                   {[]outbox.Envelope{said("wait")}, outbox.Defer(200 * time.Millisecond)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var calls atomic.Int64
				e := start(t, outbox.Config{Mode: outbox.SingleNode{
					Dispatch: outbox.DispatchOptions{HotCapacity: 1}, Poll: outbox.PollOptions{Interval: time.Hour},
				}}, func(context.Context, outbox.Envelope) error {
					if calls.Add(1) == 1 {
						return tt.first
					}
					return nil
				})
				time.Sleep(time.Minute)
				e.write(tt.envs...)
				time.Sleep(300 * time.Millisecond)
				require.Equal(t, map[outbox.Status]int{outbox.StatusDone: len(tt.envs)}, statuses(e.store))
			})
		})
	}
}
