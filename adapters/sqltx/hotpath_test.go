package sqltx_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// Nobody polls: what arrives came over the hot path.
func TestEventOfAPlainTransactionTakesTheHotPath(t *testing.T) {
	t.Parallel()
	testdb.Each(t, adaptertest.Main(), func(t *testing.T, db *testdb.DB) {
		store, err := sqlstore.Detect(t.Context(), db.DB)
		require.NoError(t, err)
		require.NoError(t, store.CreateSchema(t.Context(), db.DB))
		ob, err := outbox.New(outbox.Config{
			DB: db.DB, Store: store, Logger: slog.New(slog.DiscardHandler),
			Mode: outbox.SingleNode{Poll: outbox.PollOptions{Interval: time.Hour}},
		})
		require.NoError(t, err)
		arrived := make(chan string, 1)
		require.NoError(t, ob.Register(outbox.On("Order", "OrderPlaced", outbox.ListenerFunc(func(_ context.Context, env outbox.Envelope) error {
			arrived <- env.EventID
			return nil
		}))))
		require.NoError(t, ob.Start(t.Context()))
		defer func() { require.NoError(t, ob.Close(context.WithoutCancel(t.Context()))) }()

		tx := begin(t, db.DB)
		id, err := adaptertest.Adapter(t, db.DB, ob.Writer()).Write(t.Context(), tx, event())
		require.NoError(t, err)
		require.Empty(t, arrived)
		require.NoError(t, tx.Commit())
		select {
		case got := <-arrived:
			require.Equal(t, id, got)
		case <-time.After(20 * time.Second):
			t.Fatal("the event did not arrive")
		}
	})
}
