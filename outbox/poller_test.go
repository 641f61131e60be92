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
		}}, func(_ context.Context, env outbox.Envelope) (outbox.Result, error) {
			c.add(env.EventID)
			return outbox.Done(), nil
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

// refusingHandler is a handler that refuses one event once.
type refusingHandler struct {
	refuses string
	taken   []string
}

func (c *refusingHandler) AvailableCapacity() int { return 10 }

func (c *refusingHandler) Handle(env outbox.Envelope) bool {
	if env.EventID == c.refuses {
		c.refuses = ""
		return false
	}
	c.taken = append(c.taken, env.EventID)
	return true
}

// roomHandler is a handler that has room for a while.
type roomHandler struct {
	room  int
	taken []string
}

func (h *roomHandler) AvailableCapacity() int { return h.room }

func (h *roomHandler) Handle(env outbox.Envelope) bool {
	h.room--
	h.taken = append(h.taken, env.EventID)
	return true
}

// A dispatcher drops what it has in hand; any other handler would get it again.
func TestAHandlerGetsABacklogOnceAlsoInSeveralCycles(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, handler := written(t, named("e", 25)...), &roomHandler{}
		p, err := outbox.NewPoller(outbox.PollerConfig{
			DB: store.DB(), Store: store, Handler: handler, Logger: quiet, Options: outbox.PollOptions{BatchSize: 10},
		})
		require.NoError(t, err)
		for range 2 {
			handler.room = 15
			_, err = p.Poll(t.Context())
			require.NoError(t, err)
		}
		require.Equal(t, named("e", 25), handler.taken)
		require.NoError(t, p.Close(t.Context()))
	})
}

func TestAnEventThatAHandlerRefusesIsReadAgainFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := written(t, "1", "2", "3")
		handler := &refusingHandler{refuses: "2"}
		p, err := outbox.NewPoller(outbox.PollerConfig{DB: store.DB(), Store: store, Handler: handler, Logger: quiet})
		require.NoError(t, err)
		for range 2 {
			_, err = p.Poll(t.Context())
			require.NoError(t, err)
		}
		require.Equal(t, []string{"1", "1", "2", "3"}, handler.taken)
		require.NoError(t, p.Close(t.Context()))
	})
}
