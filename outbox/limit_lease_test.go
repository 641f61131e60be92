package outbox_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// Events wait in the lanes of two nodes for longer than a lease lasts, beside batches of
// another kind. Renewals keep them, so that each is delivered once.
func TestALaneKeepsItsLeasesBesideBatches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := outboxtest.NewStore()
		var got, batched calls
		var nodes []*engine
		for _, owner := range []string{"a", "b"} {
			e := build(t, outbox.Config{Store: store, Mode: outbox.MultiNode{
				Dispatch: outbox.DispatchOptions{Workers: 2, Rules: map[outbox.EventKind]outbox.Rules{kindSaid: {Rate: 0.01, Burst: 1}}},
				Claim:    outbox.ClaimOptions{Owner: owner, LeaseDuration: 15 * time.Second},
			}}, func(_ context.Context, env outbox.Envelope) error {
				got.add(env.EventID)
				time.Sleep(time.Minute)
				return nil
			})
			require.NoError(t, e.Register(outbox.On("", "Other", outbox.BatchListener(outbox.BatchOptions{Size: 50, Wait: time.Minute}, func(_ context.Context, batch []outbox.Envelope) ([]error, error) {
				for _, env := range batch {
					batched.add(env.EventID)
				}
				time.Sleep(time.Minute)
				return nil, nil
			}))))
			require.NoError(t, e.Start(t.Context()))
			nodes = append(nodes, e)
		}
		several(nodes[0], 10, "e", "Said")
		for i := range 10 {
			several(nodes[i%2], 20, fmt.Sprint("o", i), "Other")
		}
		pass(time.Hour)
		for _, row := range store.Rows() {
			require.Equal(t, outbox.StatusDone, row.Status)
			require.Zero(t, row.Attempts)
		}
		events, deliveries := got.total()
		require.Equal(t, []int{10, 10}, []int{events, deliveries})
		events, deliveries = batched.total()
		require.Equal(t, []int{200, 200}, []int{events, deliveries})
		for _, e := range nodes {
			require.NoError(t, e.Close(context.Background()))
		}
	})
}
