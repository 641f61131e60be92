package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// ponderous is a store whose reads answer a moment after they looked.
type ponderous struct{ *outboxtest.Store }

func (s ponderous) memory() *outboxtest.Store { return s.Store }

func (s ponderous) Poll(ctx context.Context, db outbox.DB, q outbox.PollQuery) (outbox.Batch, error) {
	b, err := s.Store.Poll(ctx, db, q)
	time.Sleep(3 * time.Millisecond)
	return b, err
}

func (s ponderous) Claim(ctx context.Context, db outbox.DB, q outbox.ClaimQuery) (outbox.Batch, error) {
	b, err := s.Store.Claim(ctx, db, q)
	time.Sleep(3 * time.Millisecond)
	return b, err
}

func (s ponderous) Reach(ctx context.Context, db outbox.DB, q outbox.PollQuery) (outbox.Reach, error) {
	reach, err := s.Store.Reach(ctx, db, q)
	time.Sleep(3 * time.Millisecond)
	return reach, err
}

func (s ponderous) NextDue(ctx context.Context, db outbox.DB, after time.Time) (time.Time, error) {
	due, err := s.Store.NextDue(ctx, db, after)
	time.Sleep(2 * time.Millisecond)
	return due, err
}

// What becomes due while the poller reads, or between the read and the question
// for what is due next, does not wait for the interval.
func TestDelayedEventsAreNeverLate(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]outbox.Mode{
		"single node": outbox.SingleNode{Dispatch: outbox.DispatchOptions{Workers: 50}},
		"many nodes":  outbox.MultiNode{Dispatch: outbox.DispatchOptions{Workers: 50}},
	} {
		for gap, step := range map[string]time.Duration{
			"within a second": time.Millisecond,
			"within one read": 100 * time.Nanosecond,
		} {
			t.Run(name+", "+gap, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { delayed(t, mode, step) })
			})
		}
	}
}

func delayed(t *testing.T, mode outbox.Mode, step time.Duration) {
	var mu sync.Mutex
	var late []time.Duration
	e := start(t, outbox.Config{Store: ponderous{outboxtest.NewStore()}, Mode: mode},
		func(_ context.Context, env outbox.Envelope) error {
			mu.Lock()
			defer mu.Unlock()
			late = append(late, time.Since(env.AvailableAt))
			return nil
		})
	time.Sleep(time.Second)
	const events = 1000
	envs := make([]outbox.Envelope, events)
	for i := range envs {
		envs[i] = said(fmt.Sprintf("e%04d", i))
		envs[i].DeliverAfter = 2*time.Second + time.Duration(i)*step
	}
	e.write(envs...)
	time.Sleep(4 * time.Second)
	require.NoError(t, e.Close(t.Context()))
	require.Len(t, late, events)
	slices.Sort(late)
	require.GreaterOrEqual(t, late[0], time.Duration(0))
	require.Less(t, late[events-1], 50*time.Millisecond)
}

// Of two events that are due one shortly after the other on an idle table, the
// second may become due at any moment of the read that finds the first.
func TestTheSecondOfTwoDelayedEventsIsNotLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		late := map[string]time.Duration{}
		var mu sync.Mutex
		e := start(t, outbox.Config{Store: ponderous{outboxtest.NewStore()}},
			func(_ context.Context, env outbox.Envelope) error {
				mu.Lock()
				defer mu.Unlock()
				late[env.EventID] = time.Since(env.AvailableAt)
				return nil
			})
		time.Sleep(time.Second)
		for gap := 200 * time.Microsecond; gap < 8*time.Millisecond; gap += 200 * time.Microsecond {
			first, second := said("first "+gap.String()), said("second "+gap.String())
			first.DeliverAfter, second.DeliverAfter = time.Second, time.Second+gap
			e.write(first, second)
			time.Sleep(7 * time.Second)
		}
		require.NoError(t, e.Close(t.Context()))
		require.Len(t, late, 2*39)
		for id, by := range late {
			require.Less(t, by, 50*time.Millisecond, id)
		}
	})
}

// An event is available when it says, also when it occurs as late.
func TestNothingIsDeliveredBeforeItIsAvailable(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]outbox.Mode{"single node": outbox.SingleNode{}, "many nodes": outbox.MultiNode{}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				at := make(chan time.Time, 1)
				e := start(t, outbox.Config{Mode: mode}, func(context.Context, outbox.Envelope) error {
					at <- time.Now()
					return nil
				})
				due := time.Now().Add(time.Hour)
				env := said("later")
				env.OccurredAt, env.AvailableAt = due, due
				e.write(env)
				require.WithinRange(t, <-at, due, due.Add(50*time.Millisecond))
				synctest.Wait()
				require.NoError(t, e.Close(t.Context()))
			})
		})
	}
}

// At the default interval of 5 s a retry and a delayed event are delivered
// when they are due, not at the next poll.
func TestRetriesAndDelaysDoNotWaitForTheInterval(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		type delivery struct {
			id string
			at time.Time
		}
		got := make(chan delivery, 10)
		e := start(t, outbox.Config{RetryPolicy: outbox.RetryPolicyFunc(func(int) time.Duration { return 200 * time.Millisecond })},
			func(_ context.Context, env outbox.Envelope) error {
				got <- delivery{env.EventID, time.Now()}
				if env.EventID == "retried" && env.Attempts == 0 {
					return errors.New("once")
				}
				return nil
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

// A delayed event that another process wrote is known only from the table.
func TestDelayedEventOfAnotherProcessIsDeliveredInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := outboxtest.NewStore()
		other := build(t, outbox.Config{Store: store, Mode: outbox.WriterOnly{}}, nil)
		late := said("delayed")
		late.DeliverAfter = 2 * time.Second
		began := time.Now()
		other.write(late)
		at := make(chan time.Time, 1)
		e := start(t, outbox.Config{Store: store}, func(context.Context, outbox.Envelope) error {
			at <- time.Now()
			return nil
		})
		require.WithinRange(t, <-at, began.Add(2*time.Second), began.Add(2050*time.Millisecond))
		synctest.Wait()
		require.NoError(t, e.Close(t.Context()))
	})
}
