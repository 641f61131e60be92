package outboxpgx_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/outbox"
)

func TestQueueCancel(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			pool, a := orders(t, mode)
			later, now := adaptertest.Event(), adaptertest.Event()
			later.DeliverAfter = time.Hour
			var ids []string
			require.NoError(t, pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) (err error) {
				ids, err = a.WriteAll(ctx, tx, []outbox.Envelope{later, now})
				return err
			}))
			cancel := func() (batch *pgx.Batch, cancelled *int) {
				batch, cancelled = &pgx.Batch{}, new(int)
				batch.Queue("SELECT 1")
				require.NoError(t, a.QueueCancel(ctx, batch, outbox.Waiting{EventIDs: ids}, func(n int) error {
					*cancelled = n
					return nil
				}))
				return batch, cancelled
			}
			rows := func() (n int) {
				require.NoError(t, pool.QueryRow(ctx, "SELECT COUNT(*) FROM outbox_event").Scan(&n))
				return n
			}
			batch, n := cancel()
			require.ErrorIs(t, pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				require.NoError(t, tx.SendBatch(ctx, batch).Close())
				return context.Canceled
			}), context.Canceled)
			require.Equal(t, 1, *n)
			require.Equal(t, 2, rows())
			for _, want := range []int{1, 0} {
				batch, n = cancel()
				require.NoError(t, pool.SendBatch(ctx, batch).Close())
				require.Equal(t, want, *n)
				require.Equal(t, 1, rows())
			}
		})
	}
}

func TestQueueCancelChecksTheChoice(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var problem *outbox.FieldError
	require.ErrorAs(t, f.a.QueueCancel(t.Context(), &pgx.Batch{}, outbox.Waiting{}, nil), &problem)
	require.ErrorAs(t, f.a.QueueCancel(t.Context(), nil, outbox.Waiting{EventIDs: []string{"a"}}, nil), &problem)
	require.ErrorAs(t, f.a.QueueCancel(t.Context(), &pgx.Batch{}, outbox.Waiting{EventIDs: make([]string, 1001)}, nil), &problem)
}
