package outboxtest_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/conformance"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

func TestStoreInMemoryPassesTheSuite(t *testing.T) {
	t.Parallel()
	conformance.RunStore(t, func(*testing.T) conformance.StoreHarness {
		return conformance.MemoryHarness(outboxtest.NewStore())
	})
}

func TestStoreCountsStopAtTheLimit(t *testing.T) {
	t.Parallel()
	store := outboxtest.NewStore()
	at := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
	envs := make([]outbox.Envelope, outbox.StatsLimit+1)
	for i := range envs {
		envs[i] = outbox.Envelope{EventID: fmt.Sprint(i), EventType: "Said", Payload: outbox.RawJSON("1"), OccurredAt: at, AvailableAt: at}
	}
	require.NoError(t, store.Insert(t.Context(), store.DB(), envs, "", time.Time{}))
	stats, err := store.Stats(t.Context(), store.DB(), at, nil)
	require.NoError(t, err)
	require.EqualValues(t, outbox.StatsLimit, stats.Due)
}

func TestStoreInsertIsVisibleAtOnceWithoutAScope(t *testing.T) {
	t.Parallel()
	store := outboxtest.NewStore()
	_, err := store.Writer().WriteUnmanaged(t.Context(), store.DB(), []outbox.Envelope{said("a")})
	require.NoError(t, err)
	require.Len(t, store.Rows(), 1)
}

func TestStoreKeepsItsRowsToItself(t *testing.T) {
	t.Parallel()
	store := outboxtest.NewStore()
	env := said("a")
	env.Headers = map[string]string{"k": "v"}
	write(t, store, env)
	row, ok := store.Row("a")
	require.True(t, ok)
	row.Envelope.Headers["k"] = "changed"
	row, _ = store.Row("a")
	require.Equal(t, "v", row.Envelope.Headers["k"])
}

func TestStoreLeasesFollowTheClockOfSynctest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := outboxtest.NewStore()
		write(t, store, said("a"))
		claim := func(lease string) int {
			b, err := store.Claim(t.Context(), store.DB(), outbox.ClaimQuery{Now: time.Now(), Limit: 10, Lease: lease, LeaseDuration: time.Minute})
			require.NoError(t, err)
			return b.Len()
		}
		require.Equal(t, 1, claim("node-1/1"))
		time.Sleep(time.Minute)
		require.Zero(t, claim("node-2/1"), "the lease lasts")
		time.Sleep(time.Microsecond)
		require.Equal(t, 1, claim("node-2/1"), "the lease expired")
	})
}

func TestDBSaysThatThereIsNoDatabase(t *testing.T) {
	t.Parallel()
	db := outboxtest.NewStore().DB()
	_, err := db.ExecContext(t.Context(), "INSERT INTO orders")
	require.ErrorIs(t, err, outboxtest.ErrNoDatabase)
	require.ErrorContains(t, err, "INSERT INTO orders")
	rows, err := db.QueryContext(t.Context(), "SELECT 1") //nolint:rowserrcheck,sqlclosecheck // there are never rows
	require.Nil(t, rows)
	require.ErrorIs(t, err, outboxtest.ErrNoDatabase)
	_, err = db.BeginTx(t.Context(), nil)
	require.ErrorIs(t, err, outboxtest.ErrNoDatabase)
	require.NotSame(t, db, outboxtest.NewStore().DB())
}
