package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// stuck is a store whose outcomes take a while, and where one event's takes until
// the caller gives up.
type stuck struct {
	*outboxtest.Store
	takes  time.Duration
	marks  atomic.Int32
	locked atomic.Bool // the row "locked"
}

func (s *stuck) memory() *outboxtest.Store { return s.Store }

func (s *stuck) Mark(ctx context.Context, db outbox.DB, kind outbox.Outcome, marks []outbox.Mark) (map[string]outbox.RowState, error) {
	s.marks.Add(1)
	takes := s.takes
	if s.locked.Load() && slices.ContainsFunc(marks, func(m outbox.Mark) bool { return m.EventID == "locked" }) {
		takes = time.Hour
	}
	select {
	case <-time.After(takes):
		return s.Store.Mark(ctx, db, kind, marks)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func handled(context.Context, outbox.Envelope) error { return nil }

func TestASetAsideOutcomeHasItsTurnUnderSteadyLoad(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &stuck{Store: outboxtest.NewStore(), takes: time.Millisecond}
		store.locked.Store(true)
		e := start(t, outbox.Config{Store: store}, handled)
		status := func(id string) outbox.Status { row, _ := store.Row(id); return row.Status }
		e.write(said("locked"))
		load := func(name string, seconds int) {
			for i := range 50 * seconds {
				e.write(said(fmt.Sprint(name, i)))
				time.Sleep(20 * time.Millisecond)
				if i >= 300 { // six seconds ago
					require.Equal(t, outbox.StatusDone, status(fmt.Sprint(name, i-300)))
				}
			}
		}
		load("while it is locked", 60)
		require.Equal(t, outbox.StatusNew, status("locked"))
		store.locked.Store(false)
		load("afterwards", 12)
		require.Equal(t, outbox.StatusDone, status("locked"))
		require.NoError(t, e.Close(context.Background()))
	})
}

func TestADatabaseThatIsSlowForAllIsGivenTime(t *testing.T) {
	t.Parallel()
	for _, events := range []int{2, 20, 400} {
		t.Run(fmt.Sprint(events), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := &stuck{Store: outboxtest.NewStore(), takes: 10 * time.Second}
				e := start(t, outbox.Config{Store: store}, handled)
				for i := range events {
					e.write(said(fmt.Sprint("e", i)))
				}
				time.Sleep(5 * time.Minute)
				require.Len(t, store.Rows(), events)
				for _, row := range store.Rows() {
					require.Equal(t, outbox.StatusDone, row.Status)
				}
				require.LessOrEqual(t, store.marks.Load(), int32(40))
				require.NoError(t, e.Close(context.Background()))
			})
		})
	}
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
			return nil, errors.New("this row cannot be marked")
		}
	}
	return f.Store.Mark(ctx, db, kind, marks)
}

func TestAnOutcomeIsRetriedUntilItIsStored(t *testing.T) {
	t.Parallel()
	store := &failing{Store: outboxtest.NewStore()}
	store.failures.Store(3)
	var c calls
	e := start(t, outbox.Config{Store: store, Mode: outbox.SingleNode{Poll: outbox.PollOptions{Interval: time.Millisecond}}},
		func(_ context.Context, env outbox.Envelope) error {
			c.add(env.EventID)
			return nil
		})
	e.write(said("once"))
	e.await("once", outbox.StatusDone)
	require.NoError(t, e.Close(t.Context()))
	require.Equal(t, map[string]int{"once": 1}, c.n, "a success is never delivered again while the process lives")
}

func TestOneOutcomeThatCannotBeStoredDoesNotHoldUpTheRest(t *testing.T) {
	t.Parallel()
	store := &failing{Store: outboxtest.NewStore(), refuse: "bad"}
	gate := make(chan struct{})
	e := start(t, outbox.Config{Store: store, Mode: outbox.SingleNode{Dispatch: outbox.DispatchOptions{DrainTimeout: 50 * time.Millisecond}}},
		func(context.Context, outbox.Envelope) error {
			<-gate
			return nil
		})
	e.write(said("good"), said("bad"), said("fine"))
	close(gate)
	e.await("good", outbox.StatusDone)
	e.await("fine", outbox.StatusDone)
	e.write(said("later"))
	e.await("later", outbox.StatusDone)
	require.ErrorContains(t, e.Close(t.Context()), "could not be stored")
}

func TestCloseReturnsWhenTheDatabaseIsAway(t *testing.T) {
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
			e := start(t, outbox.Config{Store: store, Mode: mode}, func(_ context.Context, env outbox.Envelope) error {
				c.add(env.EventID)
				return nil
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
