package outboxgorm_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	outboxgorm "github.com/outboxkit/outbox-go/adapters/gorm"
	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/outbox"
)

// With a poller that looks once an hour, what is delivered came by the hot path,
// and what was rolled back is delivered by nobody.
func TestEventsAreDeliveredOnTheHotPath(t *testing.T) {
	t.Parallel()
	eachConfig(t, adaptertest.Main(), gorm.Config{}, func(t *testing.T, f *fixture) {
		store, err := outboxgorm.Store(f.DB)
		require.NoError(t, err)
		require.NoError(t, store.CreateSchema(t.Context(), f.pool.DB))
		ob, err := outbox.New(outbox.Config{
			DB: f.pool.DB, Store: store,
			Mode: outbox.SingleNode{Poll: outbox.PollOptions{Interval: time.Hour}},
		})
		require.NoError(t, err)
		delivered := make(chan string, 10)
		placed := outbox.NewTopic[string]("Order", "OrderPlaced")
		require.NoError(t, ob.Register(placed.Listen(func(_ context.Context, name string, _ outbox.Envelope) error {
			delivered <- name
			return nil
		})))
		require.NoError(t, ob.Start(t.Context()))
		t.Cleanup(func() { require.NoError(t, ob.Close(context.Background())) }) //nolint:usetesting // the test's has ended by then.
		f.a = mustNew(t, f.DB, ob.Writer())
		write := func(tx *gorm.DB, name string) error {
			_, err := f.a.Write(t.Context(), tx, placed.Envelope("1", name))
			return err
		}
		next := func() string {
			select {
			case name := <-delivered:
				return name
			case <-time.After(20 * time.Second):
				return "nothing"
			}
		}

		require.NoError(t, f.Transaction(func(tx *gorm.DB) error { return write(tx, "transaction") }))
		require.Equal(t, "transaction", next())
		require.ErrorIs(t, f.Transaction(func(tx *gorm.DB) error {
			require.NoError(t, write(tx, "rolled back"))
			return errTest
		}), errTest)
		require.NoError(t, f.Transaction(func(tx *gorm.DB) error {
			require.ErrorIs(t, tx.Transaction(func(tx *gorm.DB) error {
				require.NoError(t, write(tx, "rolled back with a savepoint"))
				return errTest
			}), errTest)
			return nil
		}))
		require.NoError(t, f.Create(&order{hook: func(tx *gorm.DB) error { return write(tx, "model hook") }}).Error)
		require.Equal(t, "model hook", next())
		require.Empty(t, delivered)
	})
}
