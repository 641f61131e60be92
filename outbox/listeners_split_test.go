package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// brokenSplits is a store whose first splits fail; their answers are lost if carried
// out.
type brokenSplits struct {
	*outboxtest.Store
	carriedOut bool
	mu         sync.Mutex
	failures   int
	calls      int
	meanwhile  func()
}

func (s *brokenSplits) memory() *outboxtest.Store { return s.Store }

func (s *brokenSplits) Split(ctx context.Context, db outbox.DB, outcome outbox.Outcome, splits []outbox.Split) (left map[string]outbox.RowState, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	if s.meanwhile != nil {
		s.meanwhile()
	}
	fails := s.failures > 0
	s.failures--
	if !fails || s.carriedOut {
		left, err = s.Store.Split(ctx, db, outcome, splits)
	}
	if fails {
		return nil, errors.New("the connection broke")
	}
	return left, err
}

func TestASplitThatFailsIsStoredLater(t *testing.T) {
	t.Parallel()
	for name, carriedOut := range map[string]bool{"carried out": true, "not carried out": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inModes(t, outbox.DispatchOptions{}, func(t *testing.T, mode outbox.Mode) {
				var h hearing
				counts := &outcomeCounts{}
				store := &brokenSplits{Store: outboxtest.NewStore(), carriedOut: carriedOut, failures: 4}
				e := startNamed(t, outbox.Config{Store: store, Mode: mode, Metrics: counts, RetryPolicy: afterAMinute}, h.on("search", succeeds), h.on("mail", failsTimes(1)))
				e.write(said("e"))
				time.Sleep(time.Hour)
				require.Equal(t, []string{"search e/0", "mail e/0", "mail e/1"}, h.all())
				require.NoError(t, e.Close(context.Background()))
				counts.require(t, 2, 1, 0, 0, 0)
			})
		})
	}
}

var afterAMinute = outbox.RetryPolicyFunc(func(int) time.Duration { return time.Minute })

func TestASplitUnderALostLeaseLeavesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var h hearing
		counts := &outcomeCounts{}
		store := &brokenSplits{Store: outboxtest.NewStore()}
		store.meanwhile = func() {
			row, _ := store.Row("e")
			row.LockedBy = "thief/1"
			store.SetRow("e", row.RawRow)
		}
		e := startNamed(t, outbox.Config{Store: store, Mode: outbox.MultiNode{}, Metrics: counts}, h.on("search", succeeds), h.on("mail", failsTimes(9)))
		e.write(said("e"))
		time.Sleep(time.Second)
		require.Len(t, e.store.Rows(), 1)
		require.Equal(t, outbox.StatusNew, e.await("e", outbox.StatusNew).Status)
		require.NoError(t, e.Close(context.Background()))
		counts.require(t, 0, 0, 0, 0, 1)
	})
}

// A listener that is down fails each event: their outcomes are stored together.
func TestManySplitsShareATransaction(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const events = 1000
		var h hearing
		store := &brokenSplits{Store: outboxtest.NewStore()}
		e := startNamed(t, outbox.Config{Store: store, RetryPolicy: afterAnHour}, h.on("search", succeeds), h.on("mail", failsTimes(9)))
		envs := make([]outbox.Envelope, events)
		for i := range envs {
			envs[i] = said(fmt.Sprint("e", i))
		}
		e.write(envs...)
		time.Sleep(time.Minute)
		require.Len(t, e.store.Rows(), 2*events)
		require.Less(t, store.calls, 20)
	})
}

// An event is written again under its id while a listener of the first one still has
// its row.
func TestAListenerHasOneRowForAnEvent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var h hearing
		e := startNamed(t, outbox.Config{Purge: &outbox.PurgeOptions{OnDone: outbox.Delete}, RetryPolicy: afterAnHour}, h.on("search", succeeds), h.on("mail", failsTimes(9)))
		for range 2 {
			e.write(said("e"))
			time.Sleep(time.Second)
			require.Len(t, e.store.Rows(), 1)
		}
		require.Equal(t, []string{"search e/0", "mail e/0", "search e/0", "mail e/0"}, h.all())
	})
}

// While a split is on its way this node claims the row again, as after a lease that
// expired: the split is stored under the new lease.
func TestASplitGoesOnUnderANewLeaseOfThisNode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var h hearing
		counts := &outcomeCounts{}
		store := &brokenSplits{Store: outboxtest.NewStore(), failures: 20}
		e := startNamed(t, outbox.Config{Store: store, Metrics: counts, RetryPolicy: afterAnHour, Mode: outbox.MultiNode{Poll: outbox.PollOptions{Interval: time.Second}}},
			h.on("search", succeeds), h.on("mail", failsTimes(9)))
		e.write(said("e"))
		synctest.Wait() // the split is tried again and again
		row, _ := store.Row("e")
		row.LockedBy, row.LockedAt = "another/1", time.Now().Add(-time.Hour)
		store.SetRow("e", row.RawRow)
		e.Wake()
		time.Sleep(time.Minute)
		require.Equal(t, []string{"search e/0", "mail e/0"}, h.all())
		require.Len(t, e.store.Rows(), 2)
		require.NoError(t, e.Close(context.Background()))
		counts.require(t, 1, 1, 0, 0, 0)
	})
}
