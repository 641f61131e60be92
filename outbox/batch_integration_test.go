package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// Half of the events wait in the table, the others are written while those are
// delivered. Each batch holds every kind of result.
func TestBatchesOnEveryDatabase(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]outbox.Mode{"single node": outbox.SingleNode{}, "many nodes": outbox.MultiNode{}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, adaptertest.Main(), func(t *testing.T, db *testdb.DB) { runBatches(t, db, mode) })
		})
	}
}

func runBatches(t *testing.T, db *testdb.DB, mode outbox.Mode) {
	const n, size = 10_000, 100
	ctx := t.Context()
	store, err := sqlstore.Detect(ctx, db.DB)
	require.NoError(t, err)
	require.NoError(t, store.CreateSchema(ctx, db.DB))
	var calls, events atomic.Int32
	results := map[string]error{
		"01": outbox.Dead(nil), "02": outbox.Dead(errors.New("never")),
		"03": outbox.Defer(time.Hour), "04": errors.New("not yet"),
	}
	ob, err := outbox.New(outbox.Config{DB: db.DB, Store: store, Mode: mode, Logger: quiet, RetryPolicy: slowRetries})
	require.NoError(t, err)
	require.NoError(t, ob.Register(outbox.On("", "Said", outbox.BatchListener(outbox.BatchOptions{Size: size, Wait: 10 * time.Minute},
		func(_ context.Context, batch []outbox.Envelope) ([]error, error) {
			calls.Add(1)
			events.Add(int32(len(batch)))
			answers := make([]error, len(batch))
			for i, env := range batch {
				answers[i] = results[env.AggregateID]
			}
			return answers, nil
		}))))
	closeAfter(t, ob)
	a := adaptertest.Adapter(t, db.DB, ob.Writer())
	write := func(from, to, step int) {
		for i := from; i < to; i += step {
			envs := make([]outbox.Envelope, step)
			for k := range envs {
				envs[k] = said("")
				envs[k].AggregateID = fmt.Sprintf("%02d", (i+k)%100)
			}
			err := a.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
				_, err := a.WriteAll(ctx, tx, envs)
				return err
			})
			require.NoError(t, err)
		}
	}
	write(0, n/2, 1000)
	require.NoError(t, ob.Start(ctx))
	write(n/2, n, 250)
	require.Eventually(t, func() bool { return events.Load() >= n }, 2*time.Minute, 5*time.Millisecond)
	require.NoError(t, ob.Close(context.Background()))
	require.EqualValues(t, n, events.Load(), "each event once")
	require.LessOrEqual(t, calls.Load(), int32(110))

	count := func(where string) (rows int) {
		row := db.QueryRowContext(ctx, "SELECT COUNT(*) FROM outbox_event WHERE locked_by IS NULL AND "+where)
		require.NoError(t, row.Scan(&rows))
		return rows
	}
	require.Equal(t, n-4*n/100, count("status = 1"))
	require.Equal(t, 2*n/100, count("status = 3 AND attempts = 0 AND last_error IN ('the listener gave no reason', 'never')"))
	require.Equal(t, n/100, count("status = 0 AND attempts = 0"))
	require.Equal(t, n/100, count("status = 2 AND attempts = 1 AND last_error = 'not yet'"))
}
