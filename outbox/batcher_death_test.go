package outbox_test

import (
	"context"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// batchLives runs one process after the other on the store, each until a batch with the
// event "poison" kills it, or until its time is over. It returns how many died.
func batchLives(t *testing.T, store *outboxtest.Store, mode outbox.Mode, opts outbox.BatchOptions) (deaths int) {
	t.Helper()
	for range 10 {
		way, died := &cut{Store: store}, make(chan struct{})
		e := startBatches(t, outbox.Config{Store: way, Mode: mode}, opts, func(ctx context.Context, batch []outbox.Envelope) ([]error, error) {
			if !way.away.Load() && slices.ContainsFunc(batch, func(env outbox.Envelope) bool { return env.EventID == "poison" }) {
				way.away.Store(true)
				close(died)
				<-ctx.Done()
			}
			return nil, nil
		})
		select {
		case <-died:
			deaths++
		case <-time.After(30 * time.Minute):
		}
		dead := way.away.Load()
		_ = e.Close(context.Background())
		if !dead {
			return deaths
		}
	}
	t.Fatal("it never ends")
	return 0
}

// A poison event kills its process in a full batch. The next process delivers what the
// dead one had in hand one by one, whatever Wait is. The batch may hold more events than
// the queues.
func TestAPoisonEventInABatchEndsDead(t *testing.T) {
	t.Parallel()
	small := outbox.DispatchOptions{MaxAttempts: 3, HotCapacity: 1, ColdCapacity: 100}
	for name, tt := range map[string]struct {
		mode outbox.Mode
		n    int
	}{
		"single node":                {outbox.SingleNode{Dispatch: small}, 40},
		"single node, a large batch": {outbox.SingleNode{Dispatch: small}, 2200},
		"many nodes":                 {outbox.MultiNode{Dispatch: small}, 40},
		"tenants":                    {outbox.MultiNode{Dispatch: small, Claim: outbox.ClaimOptions{TenantsInTurn: true}}, 40},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tt.n > 1000 && os.Getenv(longTests) == "" {
				t.Skip("2,200 takeovers take half a minute with the race detector")
			}
			synctest.Test(t, func(t *testing.T) {
				store := written(t, append(named("e", tt.n), "poison")...)
				require.Equal(t, 3, batchLives(t, store, tt.mode, outbox.BatchOptions{Size: tt.n + 1, Wait: 24 * time.Hour}))
				row, _ := store.Row("poison")
				require.Equal(t, outbox.StatusDead, row.Status)
				require.Equal(t, map[outbox.Status]int{outbox.StatusDone: tt.n, outbox.StatusDead: 1}, statuses(store))
			})
		})
	}
}
