package outboxpgx_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

// Many clients share few connections of the server, which change hands after each
// transaction: an event still takes the hot path, once.
func TestPgBouncerInTransactionMode(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol, pgx.QueryExecModeCacheDescribe} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			pool := newPool(t, testdb.Open(t, testdb.Main()[0]).PgBouncer(t), follow, func(config *pgxpool.Config) {
				config.ConnConfig.DefaultQueryExecMode = mode
			})
			_, a, arrived := delivering(t, pool, outbox.MultiNode{Poll: outbox.PollOptions{Interval: time.Hour}})
			const clients, each = 6, 10
			var mu sync.Mutex
			var ids []string
			var wg sync.WaitGroup
			for client := range clients {
				wg.Go(func() {
					for i := range each {
						id, err := write(t.Context(), pool, func(tx pgx.Tx) (id string, err error) {
							if (client+i)%2 == 0 {
								return a.Write(t.Context(), tx, order)
							}
							batch := &pgx.Batch{}
							if id, err = a.Queue(t.Context(), batch, order); err == nil {
								err = tx.SendBatch(t.Context(), batch).Close()
							}
							return id, err
						})
						if err != nil {
							t.Error(err)
							return
						}
						mu.Lock()
						ids = append(ids, id)
						mu.Unlock()
					}
				})
			}
			wg.Wait()
			require.Len(t, ids, clients*each)
			var got []string
			for range ids {
				select {
				case id := <-arrived:
					got = append(got, id)
				case <-time.After(20 * time.Second):
					t.Fatalf("%d of %d events arrived", len(got), len(ids))
				}
			}
			require.ElementsMatch(t, ids, got)
			require.Empty(t, arrived)
		})
	}
}

func write(ctx context.Context, pool *pgxpool.Pool, fn func(tx pgx.Tx) (string, error)) (id string, err error) {
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		id, err = fn(tx)
		return err
	})
	return id, err
}
