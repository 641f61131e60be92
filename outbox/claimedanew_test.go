package outbox_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// relapsing is a store that carries out the first statement of a kind and fails
// it, while its node claims the row anew.
type relapsing struct {
	*outboxtest.Store
	kind      outbox.Outcome
	claimTake time.Duration // that a claim of rows takes from its effect to its answer
	carried   func()        // called before the statement fails
	once      sync.Once

	claimed atomic.Bool // for the next delivery
	robbed  atomic.Bool // of the lease that it got so
}

func (s *relapsing) memory() *outboxtest.Store { return s.Store }

func (s *relapsing) Mark(ctx context.Context, db outbox.DB, kind outbox.Outcome, owner string, marks []outbox.Mark) (int, error) {
	claimed := s.claimed.Load()
	n, err := s.Store.Mark(ctx, db, kind, owner, marks)
	if kind == s.kind && claimed && n > 0 {
		s.robbed.Store(true)
	}
	if kind == s.kind {
		s.once.Do(func() {
			s.carried()
			n, err = 0, errors.New("the connection broke")
		})
	}
	return n, err
}

func (s *relapsing) Claim(ctx context.Context, db outbox.DB, q outbox.ClaimQuery) (outbox.Batch, error) {
	b, err := s.Store.Claim(ctx, db, q)
	if b.Len() > 0 {
		s.claimed.Store(true)
		time.Sleep(s.claimTake)
	}
	return b, err
}

// The answer to an outcome was lost, and this node has claimed the row anew, or
// is just doing so, when the outcome is tried again. The new delivery keeps its
// lease: otherwise another node would deliver the event at the same time.
func TestALostAnswerDoesNotCostTheNextDeliveryItsLease(t *testing.T) {
	t.Parallel()
	late := func(e *engine) { // so that the lease is given up at once
		scope := outboxtest.NewScope(e.store.DB())
		_, err := e.Writer().WriteScope(e.t.Context(), scope, []outbox.Envelope{said("e")})
		require.NoError(e.t, err)
		time.Sleep(outbox.DefaultLockTimeout * 3 / 4)
		require.NoError(e.t, scope.Commit())
	}
	promptly := func(e *engine) { e.write(said("e")) }
	for name, tt := range map[string]struct {
		kind                   outbox.Outcome
		write                  func(*engine)
		first                  func() (outbox.Result, error) // nil: no delivery comes first
		failed, died, deferred int
	}{
		"retry":               {outbox.OutcomeRetry, promptly, func() (outbox.Result, error) { return outbox.Done(), outbox.RetryAfterError(0, errors.New("boom")) }, 1, 0, 0},
		"deferral":            {outbox.OutcomeDeferred, promptly, func() (outbox.Result, error) { return outbox.RetryAfter(0), nil }, 0, 0, 1},
		"death, and a replay": {outbox.OutcomeDead, promptly, func() (outbox.Result, error) { return outbox.Dead("no such thing"), nil }, 0, 1, 0},
		"lease given up":      {outbox.OutcomeReleased, late, nil, 0, 0, 0},
		"lease in doubt":      {outbox.OutcomeReleased, func(e *engine) { e.unknown(said("e")) }, nil, 0, 0, 0},
	} {
		for when, claiming := range map[string]bool{"claimed anew": false, "being claimed anew": true} {
			t.Run(name+", "+when, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					store, told := &relapsing{Store: outboxtest.NewStore(), kind: tt.kind}, &ledger{}
					again := make(chan struct{})
					store.carried = func() {
						if tt.kind == outbox.OutcomeDead {
							n, err := store.ReplayDead(t.Context(), store.DB(), []string{"e"}, time.Now())
							require.NoError(t, err)
							require.Equal(t, 1, n)
						}
						if !claiming {
							select {
							case <-again:
							case <-time.After(time.Second): // nothing is claimed meanwhile
							}
						}
					}
					if claiming {
						store.claimTake = time.Second
					}
					var c calls
					e := start(t, outbox.Config{Store: store, Metrics: told, Mode: outbox.MultiNode{
						Poll: outbox.PollOptions{Interval: 5 * time.Millisecond}, Claim: outbox.ClaimOptions{Owner: "me"},
					}}, func(_ context.Context, env outbox.Envelope) (outbox.Result, error) {
						if c.add(env.EventID) == 1 && tt.first != nil {
							time.Sleep(time.Millisecond)
							return tt.first()
						}
						close(again)
						time.Sleep(5 * time.Second)
						return outbox.Done(), nil
					})
					tt.write(e)
					<-again
					e.await("e", outbox.StatusDone)
					require.NoError(t, e.Close(context.Background()))
					require.False(t, store.robbed.Load(), "the next delivery ran without a lease")
					told.require(t, 1, tt.failed, tt.died, tt.deferred, 0)
				})
			})
		}
	}
}

// unhurried is a relapsing store that takes its time to store successes, so that
// other outcomes gather meanwhile.
type unhurried struct{ *relapsing }

func (s unhurried) Mark(ctx context.Context, db outbox.DB, kind outbox.Outcome, owner string, marks []outbox.Mark) (int, error) {
	if kind == outbox.OutcomeDone {
		time.Sleep(100 * time.Millisecond)
	}
	return s.relapsing.Mark(ctx, db, kind, owner, marks)
}

// Two outcomes were in one statement whose answer was lost. One of the rows was
// claimed anew, the other shows its outcome: no lease was lost.
func TestALostAnswerToOutcomesOfWhichOneWasClaimedAnewIsNoLostLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		again, told := make(chan struct{}), &ledger{}
		store := unhurried{&relapsing{Store: outboxtest.NewStore(), kind: outbox.OutcomeRetry, carried: func() { <-again }}}
		var c calls
		e := start(t, outbox.Config{Store: store, Metrics: told, Mode: outbox.MultiNode{
			Poll: outbox.PollOptions{Interval: 5 * time.Millisecond},
		}}, func(_ context.Context, env outbox.Envelope) (outbox.Result, error) {
			switch {
			case env.EventID == "first":
			case c.add(env.EventID) > 1:
				close(again)
				time.Sleep(time.Second)
			case env.EventID == "soon":
				time.Sleep(50 * time.Millisecond)
				return outbox.Done(), outbox.RetryAfterError(0, errors.New("boom"))
			default:
				time.Sleep(50 * time.Millisecond)
				return outbox.Done(), outbox.RetryAfterError(time.Hour, errors.New("boom"))
			}
			return outbox.Done(), nil
		})
		e.write(said("first"), said("soon"), said("later"))
		time.Sleep(10 * time.Second)
		require.NoError(t, e.Close(context.Background()))
		told.require(t, 2, 2, 0, 0, 0)
	})
}
