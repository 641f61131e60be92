package sqlstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// A plan that a prepared statement keeps from a time when the table was empty would read all
// of a large one.
func TestStatementsOnManyEventsArePlannedEachTime(t *testing.T) {
	t.Parallel()
	db := testdb.Open(t, testdb.Main()[0])
	ctx := t.Context()
	store := storeFor(db.Kind, sqlstore.WithKeyIndex(), sqlstore.WithTenantIndex(), sqlstore.WithAgeIndex())
	require.NoError(t, store.CreateSchema(ctx, db.DB))
	_, err := db.ExecContext(ctx, "VACUUM ANALYZE outbox_event")
	require.NoError(t, err)
	db.SetMaxOpenConns(1)
	now := time.Now()
	ids := idsOf("e", 0, readBatch)
	claim := outbox.ClaimQuery{Now: now, Limit: readBatch, Lease: "me/1", LockTimeout: time.Hour}
	some := claim
	some.EventIDs = ids
	calls := map[string]func() error{
		"poll": func() error {
			_, err := store.Poll(ctx, db.DB, outbox.PollQuery{Now: now, Limit: readBatch})
			return err
		},
		"claim":                func() error { _, err := store.Claim(ctx, db.DB, claim); return err },
		"claim of some events": func() error { _, err := store.Claim(ctx, db.DB, some); return err },
		"tenants": func() error {
			_, err := store.ReadTenants(ctx, db.DB, outbox.TenantQuery{Now: now, Length: 2, Limit: readBatch})
			return err
		},
		"purge by age": func() error {
			_, err := store.Purge(ctx, db.DB, outbox.PurgeQuery{Before: now, ByAge: true, Limit: readBatch})
			return err
		},
		"runs": func() error {
			_, err := store.ReadRuns(ctx, db.DB, outbox.RunQuery{Now: now, LockTimeout: time.Hour, Length: 2, Limit: readBatch})
			return err
		},
		"next due": func() error { _, err := store.NextDue(ctx, db.DB, now); return err },
		"purge": func() error {
			_, err := store.Purge(ctx, db.DB, outbox.PurgeQuery{Before: now, Limit: readBatch})
			return err
		},
		"renewal": func() error {
			leases := make([]outbox.Lease, len(ids))
			for i, id := range ids {
				leases[i] = outbox.Lease{EventID: id, Name: "me/1"}
			}
			return store.Renew(ctx, db.DB, leases)
		},
		"replay":                   func() error { _, err := store.ReplayDead(ctx, db.DB, ids, now, outbox.StatusNew); return err },
		"deletion of dead letters": func() error { _, err := store.DeleteDead(ctx, db.DB, ids); return err },
		"dead letters":             func() error { _, err := store.QueryDead(ctx, db.DB, outbox.DeadQuery{Limit: readBatch}); return err },
	}
	for outcome := outbox.OutcomeDone; outcome <= outbox.OutcomeReleased; outcome++ {
		for _, leases := range []int{0, 1, readBatch} {
			calls[fmt.Sprintf("%s, %d leases", outcome, leases)] = func() error {
				marks := make([]outbox.Mark, len(ids))
				for i, id := range ids {
					marks[i] = outbox.Mark{EventID: id, AvailableAt: now}
					if leases > 0 {
						marks[i].Lease = fmt.Sprintf("me/%d", i%leases)
					}
				}
				_, err := store.Mark(ctx, db.DB, outcome, marks)
				return err
			}
		}
	}
	for name, call := range calls {
		for range 8 { // the first five are planned each time anyway
			require.NoError(t, call(), name)
		}
	}
	var kept, planned []string
	rows, err := db.QueryContext(ctx, "SELECT statement, generic_plans FROM pg_prepared_statements WHERE statement LIKE $1", `%"outbox_event"%`)
	require.NoError(t, err)
	for rows.Next() {
		var text string
		var plans int
		require.NoError(t, rows.Scan(&text, &plans))
		if plans > 0 {
			kept = append(kept, text)
		} else {
			planned = append(planned, text)
		}
	}
	require.NoError(t, rows.Err())
	require.Empty(t, kept)
	require.Greater(t, len(planned), len(calls))
}
