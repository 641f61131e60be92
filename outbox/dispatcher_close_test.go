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

// After draining, listeners that ignore their context have a DrainTimeout and a
// second to return, whatever the contexts of the callers of Close.
func TestHowLongCloseWaitsForAListener(t *testing.T) {
	t.Parallel()
	const drain = 5 * time.Second
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for name, tc := range map[string]struct {
		ctx    context.Context
		inside bool // the listener itself closes
		want   time.Duration
	}{
		"ended context":   {ended, false, drain + time.Second},
		"context":         {context.Background(), false, 2*drain + time.Second},
		"in the listener": {context.Background(), true, 2*drain + time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				took := make(chan time.Duration, 1)
				release := make(chan struct{})
				var e *engine
				closing := func() {
					began := time.Now()
					require.ErrorContains(t, e.Close(tc.ctx), "listeners still run")
					took <- time.Since(began)
				}
				e = start(t, outbox.Config{}, func(context.Context, outbox.Envelope) error {
					if tc.inside {
						closing()
					}
					<-release
					return nil
				})
				e.write(said("1"))
				synctest.Wait()
				if !tc.inside {
					closing()
				}
				require.Equal(t, tc.want, <-took)
				require.ErrorContains(t, e.Close(ended), "listeners still run", "closing again has the same answer")
				close(release)
			})
		})
	}
}

// claimless is a store whose claims get no answer.
type claimless struct{ *outboxtest.Store }

func (s claimless) memory() *outboxtest.Store { return s.Store }

func (s claimless) Claim(ctx context.Context, _ outbox.DB, _ outbox.ClaimQuery) (outbox.Batch, error) {
	<-ctx.Done()
	return outbox.Batch{}, ctx.Err()
}

// Close waits for a running claim, and no other begins.
func TestHowLongCloseWaitsForASilentDatabase(t *testing.T) {
	t.Parallel()
	for range 20 { // for what only happens now and then
		synctest.Test(t, func(t *testing.T) {
			e := start(t, outbox.Config{Store: claimless{outboxtest.NewStore()}, Mode: outbox.MultiNode{Claim: outbox.ClaimOptions{TenantsInTurn: true}}},
				func(context.Context, outbox.Envelope) error { return nil })
			synctest.Wait()
			began := time.Now()
			require.NoError(t, e.Close(context.Background()))
			require.Equal(t, 2*time.Second, time.Since(began))
		})
	}
}

// slowly is a store whose reads of free events take a moment and are counted.
type slowly struct {
	*outboxtest.Store
	reads atomic.Int64
}

func (s *slowly) memory() *outboxtest.Store { return s.Store }

func (s *slowly) Claim(ctx context.Context, db outbox.DB, q outbox.ClaimQuery) (outbox.Batch, error) {
	time.Sleep(5 * time.Millisecond)
	s.reads.Add(1)
	return s.Store.Claim(ctx, db, q)
}

func (s *slowly) Reach(ctx context.Context, db outbox.DB, q outbox.PollQuery) (outbox.Reach, error) {
	time.Sleep(5 * time.Millisecond)
	s.reads.Add(1)
	return s.Store.Reach(ctx, db, q)
}

func TestCloseStopsReadingInTheMiddleOfABacklog(t *testing.T) {
	t.Parallel()
	for name, claim := range map[string]outbox.ClaimOptions{"ranges": {}, "tenants": {TenantsInTurn: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := &slowly{Store: written(t, named("e", 20_000)...)}
				e := start(t, outbox.Config{Store: store, Mode: outbox.MultiNode{Claim: claim}}, handled)
				time.Sleep(50 * time.Millisecond)
				before := store.reads.Load()
				require.Positive(t, before)
				require.NoError(t, e.Close(context.Background()))
				require.LessOrEqual(t, store.reads.Load(), before+1, "the read that was under way")
				for _, row := range store.Rows() {
					require.Empty(t, row.LockedBy, "what was claimed is delivered or given back")
				}
				require.Empty(t, rangesOf(t, store.Store))
			})
		})
	}
}

// One listener ignores its context for longer than Close waits. Events that no
// listener had are released at once, not when the leases expire.
func TestAStubbornListenerDoesNotKeepTheOthersLeases(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		e := start(t, outbox.Config{Mode: outbox.MultiNode{Dispatch: outbox.DispatchOptions{Workers: 4}}},
			func(ctx context.Context, env outbox.Envelope) error {
				if env.EventID == "stubborn" {
					<-release
					return nil
				}
				<-ctx.Done()
				return ctx.Err()
			})
		e.write(said("stubborn"))
		synctest.Wait()
		for _, id := range named("e", 300) {
			e.write(said(id))
		}
		closed := make(chan error, 1)
		go func() { closed <- e.Close(context.Background()) }()
		time.Sleep(outbox.DefaultDrainTimeout + time.Second)
		for _, row := range e.store.Rows() {
			require.Equal(t, row.Envelope.EventID == "stubborn", row.LockedBy != "", row.Envelope.EventID)
		}
		err := <-closed
		require.ErrorContains(t, err, "listeners still run")
		require.NotContains(t, err.Error(), "leases", "all others were given back")
		close(release)
	})
}

// A listener that answers within the documented time after its context was
// cancelled has its outcome stored.
func TestAnAnswerWithinTheLastSecondIsStored(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]outbox.Mode{"single node": outbox.SingleNode{}, "many nodes": outbox.MultiNode{}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				e := start(t, outbox.Config{Mode: mode}, func(ctx context.Context, _ outbox.Envelope) error {
					<-ctx.Done()
					time.Sleep(outbox.DefaultDrainTimeout + 900*time.Millisecond)
					return nil
				})
				e.write(said("late"))
				synctest.Wait()
				require.NoError(t, e.Close(context.Background()))
				row, _ := e.store.Row("late")
				require.Equal(t, outbox.StatusDone, row.Status)
			})
		})
	}
}

// unreleased is a store that cannot give leases back.
type unreleased struct{ *outboxtest.Store }

func (s unreleased) memory() *outboxtest.Store { return s.Store }

func (s unreleased) Mark(ctx context.Context, db outbox.DB, outcome outbox.Outcome, marks []outbox.Mark) (map[string]outbox.RowState, error) {
	if outcome == outbox.OutcomeReleased {
		return nil, errAway
	}
	return s.Store.Mark(ctx, db, outcome, marks)
}

func TestCloseSaysWhatItCouldNotGiveBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := start(t, outbox.Config{Store: unreleased{outboxtest.NewStore()}, Mode: outbox.MultiNode{}},
			func(ctx context.Context, _ outbox.Envelope) error {
				<-ctx.Done()
				return ctx.Err()
			})
		for _, id := range named("e", 10) {
			e.write(said(id))
		}
		require.ErrorContains(t, e.Close(context.Background()), "10 leases could not be given back")
	})
}
