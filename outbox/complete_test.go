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

// tallied is a store that counts the marks it is given.
type tallied struct {
	*outboxtest.Store
	marks atomic.Int32
}

func (s *tallied) memory() *outboxtest.Store { return s.Store }

func (s *tallied) Mark(ctx context.Context, db outbox.DB, kind outbox.Outcome, marks []outbox.Mark) (map[string]outbox.RowState, error) {
	s.marks.Add(int32(len(marks)))
	return s.Store.Mark(ctx, db, kind, marks)
}

// A listener that completes its event in its own transaction: how that ends and what
// the listener returns make the outcome.
func TestListenerCompletesItsEvent(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for _, c := range []struct {
		name   string
		end    func(scope *outboxtest.Scope) error
		result error
		want   outbox.Status
		marks  int32
	}{
		{"commits", (*outboxtest.Scope).Commit, nil, outbox.StatusDone, 0},
		{"commits and fails", (*outboxtest.Scope).Commit, broken, outbox.StatusDone, 0},
		{"rolls back and fails", func(s *outboxtest.Scope) error { return s.Rollback(nil) }, broken, outbox.StatusRetry, 1},
		{"rolls back", func(s *outboxtest.Scope) error { return s.Rollback(nil) }, nil, outbox.StatusRetry, 1},
		{"leaves the transaction open", func(*outboxtest.Scope) error { return nil }, nil, outbox.StatusRetry, 1},
		{"loses the answer to a COMMIT", func(s *outboxtest.Scope) error { return s.CommitUnknown(true) }, nil, outbox.StatusDone, 1},
		{"loses the answer to a COMMIT and fails", func(s *outboxtest.Scope) error { return s.CommitUnknown(true) }, broken, outbox.StatusDone, 1},
		{"loses a COMMIT", func(s *outboxtest.Scope) error { return s.CommitUnknown(false) }, nil, outbox.StatusRetry, 1},
	} {
		for name, mode := range map[string]outbox.Mode{"one node": outbox.SingleNode{}, "many nodes": outbox.MultiNode{}} {
			t.Run(c.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					store := &tallied{Store: outboxtest.NewStore()}
					var e *engine
					e = start(t, outbox.Config{Store: store, Mode: mode, RetryPolicy: outbox.ExponentialBackoff(time.Hour, time.Hour)},
						func(ctx context.Context, _ outbox.Envelope) error {
							scope := outboxtest.NewScope(e.store.DB())
							require.NoError(t, e.Writer().Complete(ctx, scope))
							require.NoError(t, c.end(scope))
							return c.result
						})
					e.write(said("e"))
					time.Sleep(time.Minute)
					row, _ := store.Row("e")
					require.Equal(t, c.want, row.Status)
					require.Equal(t, c.marks, store.marks.Load())
					require.NoError(t, e.Close(context.Background()))
				})
			})
		}
	}
}

func TestCompletionIsTriedAgainInAnotherTransaction(t *testing.T) {
	t.Parallel()
	var e *engine
	e = start(t, outbox.Config{}, func(ctx context.Context, _ outbox.Envelope) error {
		scope := outboxtest.NewScope(e.store.DB())
		require.NoError(t, e.Writer().Complete(ctx, scope))
		require.ErrorIs(t, e.Writer().Complete(ctx, scope), outbox.ErrCompleted)
		require.NoError(t, scope.Rollback(nil))

		scope = outboxtest.NewScope(e.store.DB())
		require.NoError(t, e.Writer().Complete(ctx, scope))
		require.NoError(t, scope.Commit())
		require.ErrorIs(t, e.Writer().Complete(ctx, outboxtest.NewScope(e.store.DB())), outbox.ErrCompleted)
		return nil
	})
	e.write(said("e"))
	e.await("e", outbox.StatusDone)
}

func TestCompletionIsRefused(t *testing.T) {
	t.Parallel()
	other := build(t, outbox.Config{}, nil)
	late := make(chan context.Context, 1)
	var e *engine
	e = start(t, outbox.Config{}, func(ctx context.Context, env outbox.Envelope) error {
		scope := outboxtest.NewScope(e.store.DB())
		require.ErrorIs(t, other.Writer().Complete(ctx, outboxtest.NewScope(other.store.DB())), outbox.ErrNoDelivery)
		require.ErrorIs(t, e.Writer().Complete(ctx, outboxtest.NewScope(other.store.DB())), outbox.ErrForeignTransaction)
		require.ErrorIs(t, e.Writer().Complete(ctx, nil), outbox.ErrNoTransaction)
		require.ErrorIs(t, e.Writer().Complete(t.Context(), scope), outbox.ErrNoDelivery)

		// Somebody else delivered the event meanwhile.
		_, err := e.store.Mark(ctx, e.store.DB(), outbox.OutcomeDone, []outbox.Mark{{EventID: env.EventID}})
		require.NoError(t, err)
		err = e.Writer().Complete(ctx, scope)
		require.ErrorIs(t, err, outbox.ErrLeaseLost)
		require.ErrorContains(t, err, "completing event e")
		require.NoError(t, scope.Commit())
		require.ErrorIs(t, e.Writer().Complete(ctx, scope), outbox.ErrNoTransaction)
		late <- ctx
		return nil
	})
	e.write(said("e"))
	ctx := receive(t, late)
	require.Eventually(t, func() bool {
		return errors.Is(e.Writer().Complete(ctx, outboxtest.NewScope(e.store.DB())), outbox.ErrNoDelivery)
	}, 20*time.Second, time.Millisecond)
}

func TestCompletedRowIsDeletedWhereNoHistoryIsKept(t *testing.T) {
	t.Parallel()
	var e *engine
	e = start(t, outbox.Config{Purge: &outbox.PurgeOptions{OnDone: outbox.Delete}}, func(ctx context.Context, _ outbox.Envelope) error {
		scope := outboxtest.NewScope(e.store.DB())
		require.NoError(t, e.Writer().Complete(ctx, scope))
		return scope.Commit()
	})
	e.write(said("e"))
	require.Eventually(t, func() bool {
		_, there := e.store.Row("e")
		return !there
	}, 20*time.Second, time.Millisecond)
}

// While a completion's transaction is open its row is locked; once it has rolled back,
// the lease is renewed again, however long the listener goes on.
func TestLeaseIsRenewedAfterACompletionRolledBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := outbox.Config{Store: outboxtest.NewStore(), Mode: outbox.MultiNode{Claim: outbox.ClaimOptions{LeaseDuration: time.Minute}}}
		var deliveries atomic.Int32
		var e *engine
		listener := func(ctx context.Context, _ outbox.Envelope) error {
			if deliveries.Add(1) == 1 {
				scope := outboxtest.NewScope(e.store.DB())
				require.NoError(t, e.Writer().Complete(ctx, scope))
				require.NoError(t, scope.Rollback(nil))
				time.Sleep(3 * time.Minute)
				scope = outboxtest.NewScope(e.store.DB())
				require.NoError(t, e.Writer().Complete(ctx, scope))
				require.NoError(t, scope.Commit())
			}
			return nil
		}
		e = start(t, cfg, listener)
		e.write(said("e"))
		other := start(t, cfg, listener)
		time.Sleep(10 * time.Minute)
		require.EqualValues(t, 1, deliveries.Load())
		require.NoError(t, e.Close(context.Background()))
		require.NoError(t, other.Close(context.Background()))
	})
}
