package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

func TestBacklogDrainsWithoutTheInterval(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
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
		}}, func(_ context.Context, env outbox.Envelope) error {
			c.add(env.EventID)
			return nil
		})
		time.Sleep(time.Minute)
		done, _ := c.total()
		require.Equal(t, n, done)
		require.NoError(t, e.Close(t.Context()))
		_, deliveries := c.total()
		require.Equal(t, n, deliveries)
	})
}

func TestOrderedDeliversInOrderOneAtATime(t *testing.T) {
	t.Parallel()
	var order []string
	var running atomic.Int32
	done := make(chan struct{})
	e := build(t, outbox.Config{Mode: outbox.Ordered{Poll: outbox.PollOptions{Interval: time.Millisecond, BatchSize: 3}}},
		func(_ context.Context, env outbox.Envelope) error {
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
				return errors.New("one attempt is all it gets")
			}
			return nil
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
	receive(t, done)
	require.NoError(t, e.Close(t.Context()))
	require.Equal(t, want, order)
	row, _ := e.store.Row("3")
	require.Equal(t, outbox.StatusDead, row.Status)
	require.Equal(t, 1, row.Attempts)
}

// limits is a store that remembers how many rows the poller asked for at most.
type limits struct {
	*outboxtest.Store
	most int
}

func (s *limits) memory() *outboxtest.Store { return s.Store }

func (s *limits) Poll(ctx context.Context, db outbox.DB, q outbox.PollQuery) (outbox.Batch, error) {
	s.most = max(s.most, q.Limit)
	return s.Store.Poll(ctx, db, q)
}

func TestThePollerReadsNoMoreThanThereIsRoomFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &limits{Store: written(t, named("e", 100)...)}
		e := start(t, outbox.Config{Store: store, Mode: outbox.SingleNode{
			Dispatch: outbox.DispatchOptions{Workers: 2, ColdCapacity: 7}, Poll: outbox.PollOptions{BatchSize: 50},
		}}, func(context.Context, outbox.Envelope) error {
			time.Sleep(time.Second)
			return nil
		})
		time.Sleep(2 * time.Minute)
		require.NoError(t, e.Close(t.Context()))
		require.Equal(t, 7, store.most)
		require.Equal(t, map[outbox.Status]int{outbox.StatusDone: 100}, statuses(store.Store))
	})
}

func TestWithPollerOnlyACommitHandsOverNothing(t *testing.T) {
	t.Parallel()
	dispatch := outbox.DispatchOptions{PollerOnly: true}
	poll := outbox.PollOptions{Interval: time.Minute}
	for name, mode := range map[string]outbox.Mode{
		"single node":    outbox.SingleNode{Dispatch: dispatch, Poll: poll},
		"multi node":     outbox.MultiNode{Dispatch: dispatch, Poll: poll},
		"ordered by key": outbox.OrderedByKey{Dispatch: dispatch, Poll: poll},
		"ordered":        outbox.Ordered{Poll: poll},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var c calls
				e := start(t, outbox.Config{Mode: mode}, func(_ context.Context, env outbox.Envelope) error {
					c.add(env.EventID)
					return nil
				})
				time.Sleep(time.Second)
				e.write(said("e"))
				row, _ := e.store.Row("e")
				require.Empty(t, row.LockedBy, "a lease would keep the poller away")
				time.Sleep(58 * time.Second)
				n, _ := c.total()
				require.Zero(t, n)
				time.Sleep(2 * time.Second)
				n, _ = c.total()
				require.Equal(t, 1, n)
			})
		})
	}
}
