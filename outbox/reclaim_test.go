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

// unreachable is a store that a node does not reach for a while.
type unreachable struct {
	*outboxtest.Store
	away atomic.Bool
}

func (s *unreachable) memory() *outboxtest.Store { return s.Store }

func (s *unreachable) Claim(ctx context.Context, db outbox.DB, q outbox.ClaimQuery) (outbox.Batch, error) {
	if s.away.Load() {
		return outbox.Batch{}, errGone
	}
	return s.Store.Claim(ctx, db, q)
}

func (s *unreachable) Renew(ctx context.Context, db outbox.DB, leases []outbox.Lease) error {
	if s.away.Load() {
		return errGone
	}
	return s.Store.Renew(ctx, db, leases)
}

// A node does not reach the database during a delivery. Another one takes the event over and
// dies. The first node claims the event again, and then its delivery fails: the attempts of
// both count.
func TestAFailureUnderANewLeaseKeepsTheAttemptsOfOtherNodes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &unreachable{Store: outboxtest.NewStore()}
		store.away.Store(true)
		const lease = time.Second
		e := start(t, outbox.Config{
			Store: store, RetryPolicy: outbox.ExponentialBackoff(time.Hour, time.Hour),
			Mode: outbox.MultiNode{Claim: outbox.ClaimOptions{LeaseDuration: lease}},
		}, func(context.Context, outbox.Envelope) error {
			time.Sleep(time.Minute)
			return errors.New("boom")
		})
		e.write(said("e"))
		time.Sleep(2 * lease)
		b, err := store.Store.Claim(t.Context(), store.DB(), outbox.ClaimQuery{Now: time.Now(), Limit: 1, Lease: "other/1", LeaseDuration: lease})
		require.NoError(t, err)
		require.Len(t, b.Envelopes, 1)
		time.Sleep(2 * lease)
		store.away.Store(false)
		time.Sleep(2 * time.Minute)
		row, _ := store.Row("e")
		require.Equal(t, outbox.StatusRetry, row.Status)
		require.Equal(t, 2, row.Attempts)
		require.NoError(t, e.Close(context.Background()))
	})
}
