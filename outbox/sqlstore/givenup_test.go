package sqlstore_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

// A statement names a row that is locked, and fails. It must not go on in the server and
// hold its other rows, whose outcomes could not be stored meanwhile. SQLite locks no rows.
func TestAStatementThatFailsOnALockedRowHoldsNoOthers(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main()[:2], func(t *testing.T, db *testdb.DB) {
		store := detected(t, db)
		require.NoError(t, store.CreateSchema(t.Context(), db.DB))
		now := time.Now()
		calls := map[string]func(ctx context.Context, ids, leases []string) error{
			"renewing": func(ctx context.Context, ids, names []string) error {
				leases := make([]outbox.Lease, len(ids))
				for i, id := range ids {
					leases[i] = outbox.Lease{EventID: id, Name: names[i]}
				}
				return store.Renew(ctx, db.DB, leases)
			},
		}
		for outcome := outbox.OutcomeDone; outcome <= outbox.OutcomeReleased; outcome++ {
			calls[outcome.String()] = func(ctx context.Context, ids, names []string) error {
				marks := make([]outbox.Mark, len(ids))
				for i, id := range ids {
					marks[i] = outbox.Mark{EventID: id, Lease: names[i], AvailableAt: now}
				}
				_, err := store.Mark(ctx, db.DB, outcome, marks)
				return err
			}
		}
		for name, call := range calls {
			for _, leases := range []int{1, 3} {
				ids, names := make([]string, 3), make([]string, 3)
				for i := range ids {
					ids[i], names[i] = fmt.Sprint(name, leases, i), fmt.Sprint("me/", i%leases)
					envs := events("e", 1)
					envs[0].EventID = ids[i]
					require.NoError(t, store.Insert(t.Context(), db.DB, envs, names[i], now.Add(time.Hour)))
				}
				lock := func(id, how string) (unlock func(), err error) {
					tx, err := db.BeginTx(t.Context(), nil)
					require.NoError(t, err)
					_, err = tx.ExecContext(t.Context(), "SELECT event_id FROM outbox_event WHERE event_id = '"+id+"' FOR UPDATE"+how)
					return func() { require.NoError(t, tx.Rollback()) }, err
				}
				unlock, err := lock(ids[1], "")
				require.NoError(t, err)
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				require.Error(t, call(ctx, ids, names), name)
				cancel()
				for _, id := range []string{ids[0], ids[2]} {
					require.Eventually(t, func() bool { // a canceled statement ends a little later
						undo, err := lock(id, " NOWAIT")
						undo()
						return err == nil
					}, 20*time.Second, 10*time.Millisecond, "%s holds %s", name, id)
				}
				unlock()
				require.NoError(t, call(t.Context(), ids, names), name)
			}
		}
	})
}
