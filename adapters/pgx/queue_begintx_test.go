//go:build !floors

package outboxpgx_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
)

// Batch.BeginTx is in pgx 5.11 and newer.
func TestQueueInABatchWithBeginTx(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	batch := &pgx.Batch{}
	batch.BeginTx(pgx.TxOptions{})
	f.queue(t, batch)
	results := f.pool.SendBatch(t.Context(), batch)
	tx := results.Tx()
	_, err := results.Exec()
	require.NoError(t, err)
	_, err = f.a.Write(t.Context(), tx, adaptertest.Event())
	require.ErrorContains(t, err, "conn busy", "the batch is not closed")
	require.NoError(t, results.Close())
	f.write(t, tx)
	require.NoError(t, tx.Commit(t.Context()))
	f.rec.EventuallyInAnyOrder(t, "commit", "commit")
	f.written(t, 2)
}
