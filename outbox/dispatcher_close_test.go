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

// Listeners that ignore their context are given a DrainTimeout and a second to
// return, beside the draining, whatever the contexts of those who close.
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
				e = start(t, outbox.Config{}, func(context.Context, outbox.Envelope) (outbox.Result, error) {
					if tc.inside {
						closing()
					}
					<-release
					return outbox.Done(), nil
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

// A claim that is under way gets its time, and no other begins.
func TestHowLongCloseWaitsForASilentDatabase(t *testing.T) {
	t.Parallel()
	for range 20 { // for what only happens now and then
		synctest.Test(t, func(t *testing.T) {
			e := start(t, outbox.Config{Store: claimless{outboxtest.NewStore()}, Mode: outbox.MultiNode{}},
				func(context.Context, outbox.Envelope) (outbox.Result, error) { return outbox.Done(), nil })
			synctest.Wait()
			began := time.Now()
			require.NoError(t, e.Close(context.Background()))
			require.Equal(t, 2*time.Second, time.Since(began))
		})
	}
}

// slowly is a store whose claims take a moment and are counted.
type slowly struct {
	*outboxtest.Store
	claims atomic.Int64
}

func (s *slowly) memory() *outboxtest.Store { return s.Store }

func (s *slowly) Claim(ctx context.Context, db outbox.DB, q outbox.ClaimQuery) (outbox.Batch, error) {
	time.Sleep(5 * time.Millisecond)
	s.claims.Add(1)
	return s.Store.Claim(ctx, db, q)
}

func TestCloseStopsClaimingInTheMiddleOfABacklog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &slowly{Store: written(t, named("e", 20_000)...)}
		e := start(t, outbox.Config{Store: store, Mode: outbox.MultiNode{}}, handled)
		time.Sleep(50 * time.Millisecond)
		before := store.claims.Load()
		require.Positive(t, before)
		require.NoError(t, e.Close(context.Background()))
		require.LessOrEqual(t, store.claims.Load(), before+1, "the one that was under way")
		for _, row := range store.Rows() {
			require.Empty(t, row.LockedBy, "what was claimed is delivered or given back")
		}
	})
}
