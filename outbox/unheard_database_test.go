package outbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// Two processes have listeners for a kind each, and write events of both kinds and of a third kind. Each
// event of the first two is delivered once. No event has an attempt or a lease in the end.
func TestEachProcessDeliversTheKindsThatItKnowsOnEveryDatabase(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]func(outbox.ClaimOptions) outbox.Mode{
		"multi node": func(c outbox.ClaimOptions) outbox.Mode { return outbox.MultiNode{Poll: often, Claim: c} },
		"ordered by key": func(c outbox.ClaimOptions) outbox.Mode {
			return outbox.OrderedByKey{Poll: often, Claim: c}
		},
		"tenants in turn": func(c outbox.ClaimOptions) outbox.Mode {
			c.TenantsInTurn = true
			return outbox.MultiNode{Poll: often, Claim: c}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, adaptertest.Main(), func(t *testing.T, db *testdb.DB) { runUnheard(t, db, mode) })
		})
	}
}

var often = outbox.PollOptions{Interval: 50 * time.Millisecond, BatchSize: 15}

func runUnheard(t *testing.T, db *testdb.DB, mode func(outbox.ClaimOptions) outbox.Mode) {
	ctx := t.Context()
	store, err := sqlstore.Detect(ctx, db.DB, sqlstore.WithKeyIndex(), sqlstore.WithTenantIndex())
	require.NoError(t, err)
	require.NoError(t, store.CreateSchema(ctx, db.DB))
	const rounds = 60
	kinds := []outbox.EventKind{{AggregateType: "Order", EventType: "First"}, {AggregateType: "Order", EventType: "Second"}, {EventType: "Third"}}
	var delivered calls
	adapters := make([]*sqltx.Adapter, 2)
	nodes := make([]*outbox.Outbox, 2)
	for i := range nodes {
		pool := db.Reopen(t)
		nodes[i], err = outbox.New(outbox.Config{DB: pool.DB, Store: store, Logger: quiet, Mode: mode(outbox.ClaimOptions{Owner: fmt.Sprint("node-", i)})})
		require.NoError(t, err)
		require.NoError(t, nodes[i].Register(outbox.On(kinds[i].AggregateType, kinds[i].EventType, outbox.ListenerFunc(func(_ context.Context, env outbox.Envelope) error {
			delivered.add(env.EventID)
			return nil
		}))))
		require.NoError(t, nodes[i].Start(ctx))
		t.Cleanup(func() { _ = nodes[i].Close(context.Background()) })
		adapters[i] = adaptertest.Adapter(t, pool.DB, nodes[i].Writer())
	}
	for round := range rounds {
		for i, a := range adapters {
			require.NoError(t, a.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
				for k, kind := range kinds {
					env := outbox.Envelope{AggregateType: kind.AggregateType, EventType: kind.EventType, AggregateID: fmt.Sprint(k, i, round), TenantID: fmt.Sprint(k), Payload: outbox.JSON(round)}
					if _, err := a.Write(ctx, tx, env); err != nil {
						return err
					}
				}
				return nil
			}))
		}
	}
	count := func(where string) (n int) {
		require.NoError(t, db.QueryRowContext(context.Background(), "SELECT COUNT(*) FROM outbox_event WHERE "+where).Scan(&n))
		return n
	}
	require.Eventually(t, func() bool { return count("status = 1 AND aggregate_type = 'Order'") == 4*rounds }, 60*time.Second, 20*time.Millisecond)
	events, deliveries := delivered.total()
	require.Equal(t, []int{4 * rounds, 4 * rounds}, []int{events, deliveries})
	for i := range nodes {
		require.NoError(t, nodes[i].Close(context.Background()))
	}
	require.Equal(t, 2*rounds, count("status = 0 AND event_type = 'Third' AND attempts = 0 AND last_error IS NULL AND locked_by IS NULL AND available_at = created_at"))
}
