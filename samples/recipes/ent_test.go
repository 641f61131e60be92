package recipes_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
	"github.com/outboxkit/outbox-go/samples/recipes"
	"github.com/outboxkit/outbox-go/samples/recipes/ent"
	_ "github.com/outboxkit/outbox-go/samples/recipes/ent/runtime" // ent's hooks and checks
)

func entShop(t *testing.T) (*recipes.EntShop, *sqlstore.Store) {
	t.Helper()
	s, err := recipes.NewEntShop(testdb.Open(t, testdb.Main()[0]).DSN)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.DB.Close()) })
	store := sqlstore.Postgres()
	require.NoError(t, store.CreateSchema(t.Context(), s.DB))
	_, err = s.DB.ExecContext(t.Context(), schema)
	require.NoError(t, err)
	return s, store
}

// No order stays without its event.
func TestEntHook(t *testing.T) {
	t.Parallel()
	s, store := entShop(t)
	s.WriteByHook()
	require.NoError(t, s.PlaceHooked(t.Context(), recipes.Order{ID: "o-1", Item: "tea"}))
	require.Error(t, s.PlaceHooked(t.Context(), recipes.Order{ID: strings.Repeat("x", 200), Item: "tea"}), "the outbox refuses its event")
	_, err := s.Client.Order.Create().SetID("o-2").SetItem("tea").Save(t.Context())
	require.ErrorContains(t, err, "not running in a transaction")
	outboxtest.AssertPending(t, store, s.DB, outboxtest.Event{AggregateID: "o-1", Payload: recipes.Order{ID: "o-1", Item: "tea"}})
	var orders int
	require.NoError(t, s.DB.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM orders").Scan(&orders))
	require.Equal(t, 1, orders)
}

func TestEntListenerInItsTransaction(t *testing.T) {
	t.Parallel()
	s, store := entShop(t)
	handled := make(chan string, 1)
	require.NoError(t, s.Outbox.Register(outbox.On("Order", "OrderPlaced", s.Transactor().Handle(
		func(ctx context.Context, tx *ent.Tx, env outbox.Envelope) error {
			_, err := tx.Order.Create().SetID("copy of " + env.AggregateID).SetItem("tea").Save(ctx)
			handled <- env.EventID
			return err
		}))))
	require.NoError(t, s.Outbox.Start(t.Context()))
	require.NoError(t, s.PlaceInTx(t.Context(), recipes.Order{ID: "o-1", Item: "tea"}))
	<-handled
	require.NoError(t, s.Outbox.Close(t.Context()))
	outboxtest.AssertPending(t, store, s.DB)
	var orders int
	require.NoError(t, s.DB.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM orders").Scan(&orders))
	require.Equal(t, 2, orders)
}
