package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// The main job on real databases: business rows and events in transactions, some
// of them rolled back, through small queues, so that both paths work; every
// committed event reaches its listener once and is DONE, no other ever does.
func TestBusinessRowsAndEventsOnEveryDatabase(t *testing.T) {
	t.Parallel()
	dispatch := outbox.DispatchOptions{HotCapacity: 5, ColdCapacity: 10}
	poll := outbox.PollOptions{Interval: 20 * time.Millisecond, BatchSize: 7}
	for name, modes := range map[string][]outbox.Mode{
		"single node": {outbox.SingleNode{Dispatch: dispatch, Poll: poll}},
		"three nodes": {
			outbox.MultiNode{Dispatch: dispatch, Poll: poll},
			outbox.MultiNode{Dispatch: dispatch, Poll: poll},
			outbox.MultiNode{Dispatch: dispatch, Poll: poll},
		},
		"ordered": {outbox.Ordered{Poll: poll}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, adaptertest.Main(), func(t *testing.T, db *testdb.DB) { runBusiness(t, db, modes) })
		})
	}
}

func runBusiness(t *testing.T, db *testdb.DB, modes []outbox.Mode) {
	ctx := t.Context()
	store, err := sqlstore.Detect(ctx, db.DB)
	require.NoError(t, err)
	require.NoError(t, store.CreateSchema(ctx, db.DB))
	_, err = db.ExecContext(ctx, "CREATE TABLE orders (id VARCHAR(64) PRIMARY KEY)")
	require.NoError(t, err)
	insert := "INSERT INTO orders (id) VALUES (?)"
	if db.Kind == testdb.Postgres {
		insert = "INSERT INTO orders (id) VALUES ($1)"
	}
	_, ordered := modes[0].(outbox.Ordered)
	var delivered calls
	var adapters []*sqltx.Adapter
	var nodes []*outbox.Outbox
	for _, mode := range modes {
		pool := db.Reopen(t)
		ob, err := outbox.New(outbox.Config{DB: pool.DB, Store: store, Mode: mode, Logger: quiet, RetryPolicy: outbox.ExponentialBackoff(time.Millisecond, 5*time.Millisecond)})
		require.NoError(t, err)
		require.NoError(t, ob.Register(outbox.On("Order", "Placed", outbox.ListenerFunc(func(_ context.Context, env outbox.Envelope) error {
			if env.AggregateID[len(env.AggregateID)-1] == '3' && env.Attempts == 0 && !ordered {
				return errors.New("once more, please") // by a retry, on any node
			}
			delivered.add(env.AggregateID)
			return nil
		}))))
		require.NoError(t, ob.Start(ctx))
		closeAfter(t, ob)
		nodes, adapters = append(nodes, ob), append(adapters, adaptertest.Adapter(t, pool.DB, ob.Writer()))
	}
	const writers, each = 4, 50
	refused := errors.New("refused")
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			a := adapters[w%len(adapters)]
			for i := range each {
				id := fmt.Sprintf("%d-%d", w, i)
				err := a.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
					if _, err := tx.ExecContext(ctx, insert, id); err != nil {
						return err
					}
					_, err := a.Write(ctx, tx, outbox.Envelope{EventType: "Placed", AggregateType: "Order", AggregateID: id, Payload: outbox.JSON(id)})
					if err == nil && i%10 == 9 {
						err = refused
					}
					return err
				})
				if i%10 == 9 {
					errIs(t, err, refused)
				} else if err != nil {
					t.Errorf("order %s: %v", id, err)
				}
			}
		})
	}
	wg.Wait()
	var orders, done, others int
	require.Eventually(t, func() bool {
		row := db.QueryRowContext(ctx, "SELECT (SELECT COUNT(*) FROM orders), (SELECT COUNT(*) FROM outbox_event WHERE status = 1), (SELECT COUNT(*) FROM outbox_event WHERE status <> 1)")
		return row.Scan(&orders, &done, &others) == nil && others == 0
	}, 30*time.Second, 5*time.Millisecond)
	for _, ob := range nodes {
		require.NoError(t, ob.Close(context.Background()))
	}
	require.Equal(t, writers*each*9/10, orders)
	require.Equal(t, orders, done)
	events, deliveries := delivered.total()
	require.Equal(t, orders, events)
	require.Equal(t, orders, deliveries, "an event was delivered twice")
}

func errIs(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("got %v, want %v", err, want)
	}
}
