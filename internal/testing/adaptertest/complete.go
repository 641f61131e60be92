package adaptertest

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// HandleCompletes checks an adapter's Handle: a listener that writes to a ledger in its transaction
// fails once after the write, and then succeeds. newListener makes the adapter for the writer, and
// a listener that calls fn with a function that runs a statement in the listener's transaction.
func HandleCompletes(t *testing.T, db *testdb.DB, newListener func(w *outbox.Writer, fn func(exec func(query string) error) error) (outbox.Transactor, outbox.Listener)) {
	t.Helper()
	Exec(t, db.DB, "CREATE TABLE ledger (n INT NOT NULL)")
	store, err := sqlstore.Detect(t.Context(), db.DB)
	require.NoError(t, err)
	require.NoError(t, store.CreateSchema(t.Context(), db.DB))
	ob, err := outbox.New(outbox.Config{
		DB: db.DB, Store: store, Logger: slog.New(slog.DiscardHandler),
		RetryPolicy: outbox.ExponentialBackoff(time.Millisecond, time.Millisecond),
	})
	require.NoError(t, err)
	var calls atomic.Int32
	a, listener := newListener(ob.Writer(), func(exec func(query string) error) error {
		if err := exec("INSERT INTO ledger (n) VALUES (1)"); err != nil {
			return err
		}
		if calls.Add(1) == 1 {
			return errors.New("failed after the effect")
		}
		return nil
	})
	require.NoError(t, ob.Register(outbox.On("Order", "OrderPlaced", listener)))
	require.NoError(t, ob.Start(t.Context()))
	defer func() { require.NoError(t, ob.Close(context.WithoutCancel(t.Context()))) }()
	require.NoError(t, outbox.InTx(t.Context(), a, func(ctx context.Context) error {
		_, err := ob.Writer().Write(ctx, Event())
		return err
	}))
	count := func(query string) (n int) {
		require.NoError(t, db.QueryRowContext(t.Context(), query).Scan(&n))
		return n
	}
	require.Eventually(t, func() bool { return count("SELECT COUNT(*) FROM outbox_event WHERE status = 1") == 1 }, 20*time.Second, time.Millisecond)
	require.Equal(t, 1, count("SELECT COUNT(*) FROM ledger"))
	require.EqualValues(t, 2, calls.Load())
}
