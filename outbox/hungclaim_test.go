package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// hung is a store whose claims get no answer for a while, as on a connection that
// broke in silence. All else goes on, but for the first statement of a kind, which
// fails.
type hung struct {
	*outboxtest.Store
	fails outbox.Outcome
	once  sync.Once
	hangs atomic.Bool
}

func (s *hung) memory() *outboxtest.Store { return s.Store }

func (s *hung) Mark(ctx context.Context, db outbox.DB, kind outbox.Outcome, owner string, marks []outbox.Mark) (n int, err error) {
	if kind == s.fails {
		s.once.Do(func() { err = errors.New("the connection broke") })
	}
	if err != nil {
		return 0, err
	}
	return s.Store.Mark(ctx, db, kind, owner, marks)
}

func (s *hung) Claim(ctx context.Context, db outbox.DB, q outbox.ClaimQuery) (outbox.Batch, error) {
	if s.hangs.Load() {
		<-ctx.Done()
		return outbox.Batch{}, ctx.Err()
	}
	return s.Store.Claim(ctx, db, q)
}

// journal is what was handled when.
type journal struct {
	mu  sync.Mutex
	ids []string
	at  []time.Time
}

func (j *journal) add(id string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.ids, j.at = append(j.ids, id), append(j.at, time.Now())
}

// before takes out what was handled by then.
func (j *journal) before(then time.Time) (ids []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for len(j.at) > 0 && !j.at[0].After(then) {
		ids = append(ids, j.ids[0])
		j.ids, j.at = j.ids[1:], j.at[1:]
	}
	return ids
}

// begin opens a transaction and writes an event in it.
func (e *engine) begin(id string) *outboxtest.Scope {
	e.t.Helper()
	scope := outboxtest.NewScope(e.store.DB())
	_, err := e.Writer().WriteScope(e.t.Context(), scope, []outbox.Envelope{said(id)})
	require.NoError(e.t, err)
	return scope
}

// Statements that must not cross a claim do not hold up the others while one hangs:
// what a listener has done is DONE within a second.
func TestAClaimThatHangsDoesNotHoldUpOutcomes(t *testing.T) {
	t.Parallel()
	one := func(e *engine, i int) { e.write(said(fmt.Sprint("done", i))) }
	many := func(e *engine, i int) { // at once, so that the hot queue drops some
		var scopes []*outboxtest.Scope
		for n := range 50 {
			scopes = append(scopes, e.begin(fmt.Sprint("done", i, "-", n)))
		}
		for _, scope := range scopes {
			require.NoError(e.t, scope.Commit())
		}
	}
	for name, tt := range map[string]struct {
		fails  outbox.Outcome
		before func(e *engine) (during func())
		load   func(e *engine, i int)
	}{
		"the hot queue overflows": {load: many, fails: outbox.OutcomeDelete},
		"leases are given up late": {load: one, fails: outbox.OutcomeDelete, before: func(e *engine) func() {
			one, other := e.begin("late one"), e.begin("late other")
			time.Sleep(outbox.DefaultLockTimeout)
			return func() {
				require.NoError(t, one.Commit())
				require.NoError(t, other.Commit())
			}
		}},
		"a success fails to be stored": {load: one, fails: outbox.OutcomeDone},
		"a failure fails to be stored": {load: one, fails: outbox.OutcomeRetry, before: func(e *engine) func() {
			return func() { e.write(said("fail")) }
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := &hung{Store: outboxtest.NewStore(), fails: tt.fails}
				var handled journal
				e := start(t, outbox.Config{
					Store: store, Mode: outbox.MultiNode{Dispatch: outbox.DispatchOptions{Workers: 10, HotCapacity: 10}},
					RetryPolicy: outbox.RetryPolicyFunc(func(int) time.Duration { return time.Hour }),
				}, func(_ context.Context, env outbox.Envelope) (outbox.Result, error) {
					time.Sleep(10 * time.Millisecond)
					if env.EventID[:4] != "fail" {
						handled.add(env.EventID)
					}
					return answer(env.EventID)
				})
				during := func() {}
				if tt.before != nil {
					during = tt.before(e)
				}
				store.hangs.Store(true)
				e.Wake()
				synctest.Wait()
				during()
				for i := range 60 {
					tt.load(e, i)
					time.Sleep(100 * time.Millisecond)
					for _, id := range handled.before(time.Now().Add(-time.Second)) {
						row, _ := store.Row(id)
						require.Equal(t, outbox.StatusDone, row.Status, "%s, after %d", id, i)
					}
				}
				store.hangs.Store(false)
				time.Sleep(time.Minute)
				for _, row := range store.Rows() {
					require.Empty(t, row.LockedBy, row.Envelope.EventID)
					require.Equal(t, row.Envelope.EventID == "fail", row.Status == outbox.StatusRetry)
				}
				require.NoError(t, e.Close(context.Background()))
			})
		})
	}
}

// A transaction took longer than a lease, and its own node is just claiming the
// row, with an answer that takes its time, when it hears of the end. The lease of
// the claim stays.
func TestALeaseGivenUpLateDoesNotCostAClaimUnderWayItsOwn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &relapsing{Store: outboxtest.NewStore(), kind: outbox.OutcomeReleased, claimTake: time.Second, carried: func() {}}
		store.once.Do(func() {}) // no answer is lost
		e := start(t, outbox.Config{Store: store, Mode: outbox.MultiNode{}}, func(context.Context, outbox.Envelope) (outbox.Result, error) {
			time.Sleep(time.Second)
			return outbox.Done(), nil
		})
		scope := &visible{Scope: outboxtest.NewScope(e.store.DB())}
		_, err := e.Writer().WriteScope(t.Context(), scope, []outbox.Envelope{said("e")})
		require.NoError(t, err)
		time.Sleep(outbox.DefaultLockTimeout + time.Second)
		for !store.claimed.Load() {
			time.Sleep(10 * time.Millisecond)
		}
		for _, fn := range scope.commit {
			fn(t.Context())
		}
		time.Sleep(10 * time.Second)
		row, _ := store.Row("e")
		require.Equal(t, outbox.StatusDone, row.Status)
		require.False(t, store.robbed.Load(), "the delivery ran without a lease")
	})
}
