package outbox_test

import (
	"context"
	"database/sql"
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

// Nodes that are closed in the middle of the load and started again lose
// nothing, leave no lease behind, and deliver nothing twice.
func TestNodesComeAndGo(t *testing.T) {
	t.Parallel()
	testdb.Each(t, adaptertest.Main(), func(t *testing.T, db *testdb.DB) {
		ctx := t.Context()
		store, err := sqlstore.Detect(ctx, db.DB)
		require.NoError(t, err)
		require.NoError(t, store.CreateSchema(ctx, db.DB))
		var c calls
		open := func(node int) (*outbox.Outbox, *sqltx.Adapter) {
			ob, err := outbox.New(outbox.Config{DB: db.DB, Store: store, Logger: quiet, Mode: outbox.MultiNode{
				Dispatch: outbox.DispatchOptions{HotCapacity: 8, ColdCapacity: 8},
				Poll:     outbox.PollOptions{Interval: 5 * time.Millisecond, BatchSize: 5},
				Claim:    outbox.ClaimOptions{Owner: fmt.Sprint("node-", node)},
			}})
			require.NoError(t, err)
			require.NoError(t, ob.Register(outbox.On("", "Said", outbox.ListenerFunc(func(_ context.Context, env outbox.Envelope) error {
				c.add(env.EventID)
				return nil
			}))))
			return ob, adaptertest.Adapter(t, db.DB, ob.Writer())
		}
		const nodes, restarts, each = 3, 4, 15
		var wg sync.WaitGroup
		for node := range nodes {
			wg.Go(func() {
				for range restarts {
					ob, a := open(node)
					if err := ob.Start(ctx); err != nil {
						t.Error(err)
					}
					for range each {
						err := a.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
							_, err := a.WriteAll(ctx, tx, []outbox.Envelope{said(""), said("")})
							return err
						})
						if err != nil {
							t.Error(err)
						}
					}
					if err := ob.Close(context.Background()); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		var leased int
		require.NoError(t, db.QueryRowContext(ctx, "SELECT COUNT(*) FROM outbox_event WHERE locked_by IS NOT NULL").Scan(&leased))
		require.Zero(t, leased, "nodes that were closed hold nothing")
		last, _ := open(nodes)
		require.NoError(t, last.Start(ctx))
		require.Eventually(t, func() bool {
			st, err := last.Stats(ctx)
			return err == nil && st.Pending == 0
		}, 30*time.Second, 5*time.Millisecond)
		require.NoError(t, last.Close(context.Background()))
		events, deliveries := c.total()
		require.Equal(t, nodes*restarts*each*2, events)
		require.Equal(t, events, deliveries, "an event was delivered twice")
	})
}
