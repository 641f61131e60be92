package sqlstore_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// keptCost is postgresCost of a statement as the session has prepared it, with the plan
// that it may have kept.
func keptCost(t *testing.T, db *testdb.DB, s statement) int {
	t.Helper()
	var name, text string
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT name FROM pg_prepared_statements WHERE statement = $1", s.text).Scan(&name))
	literals := make([]string, len(s.args))
	for i, arg := range s.args {
		literals[i] = "'" + strings.ReplaceAll(fmt.Sprint(arg), "'", "''") + "'"
	}
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback()) }()
	require.NoError(t, tx.QueryRowContext(t.Context(), "EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE "+name+"("+strings.Join(literals, ", ")+")").Scan(&text))
	var plans []struct{ Plan plan }
	require.NoError(t, json.Unmarshal([]byte(text), &plans))
	return plans[0].Plan.cost()
}

// A plan that a prepared statement keeps from a time when the table was empty must not
// read the backlog.
func TestPlansThatAreKeptReadWhatTheyReturn(t *testing.T) {
	t.Parallel()
	db := testdb.Open(t, testdb.Main()[0])
	ctx := t.Context()
	store := storeFor(db.Kind, sqlstore.WithKeyIndex())
	require.NoError(t, store.CreateSchema(ctx, db.DB))
	for _, statement := range []string{"ALTER TABLE outbox_event SET (autovacuum_enabled = false)", "VACUUM ANALYZE outbox_event"} {
		_, err := db.ExecContext(ctx, statement)
		require.NoError(t, err)
	}
	db.SetMaxOpenConns(1)
	rec := &recorded{DB: db.DB}
	now := time.Now().UTC().Truncate(time.Second)
	ids := make([]string, readBatch)
	for i := range ids {
		ids[i] = fmt.Sprintf("p%08d", 100*i)
	}
	calls := map[string]func() (int, error){
		"claim of some events": func() (int, error) {
			b, err := store.Claim(ctx, rec, outbox.ClaimQuery{Now: now, Limit: readBatch, EventIDs: ids, Lease: "me/1", LeaseDuration: time.Hour, FreshOnly: true})
			return b.Len(), err
		},
		"runs": func() (int, error) {
			runs, err := store.ReadRuns(ctx, rec, outbox.RunQuery{Now: now, LeaseDuration: time.Hour, Length: 2, Limit: readBatch})
			return len(runs.EventIDs), err
		},
	}
	for range 8 {
		for name, call := range calls {
			n, err := call()
			require.NoError(t, err, name)
			require.Zero(t, n, name)
		}
	}
	loadRows(t, db, []part{{"p", pendingRows, 0, now.Add(-time.Hour), now.Add(-time.Hour), time.Time{}}}, withKeys(db, 1000))
	for name, call := range calls {
		rec.statements = nil
		for range 8 {
			_, err := call()
			require.NoError(t, err)
		}
		cost := keptCost(t, db, rec.statements[0])
		require.LessOrEqual(t, cost, 4*readLimit, name) // with the versions that the updates left
	}
}

// Under plan_cache_mode force_generic_plan a statement has the plan for any parameters, whose
// estimate must not make PostgreSQL compile it, which takes longer than to run it.
func TestGenericPlansAreNotCompiled(t *testing.T) {
	t.Parallel()
	db := testdb.Open(t, testdb.Main()[0])
	ctx := t.Context()
	store := storeFor(db.Kind, sqlstore.WithKeyIndex(), sqlstore.WithTenantIndex())
	require.NoError(t, store.CreateSchema(ctx, db.DB))
	db.SetMaxOpenConns(1)
	now := time.Now().UTC().Truncate(time.Second)
	loadRows(t, db, []part{{"p", pendingRows, 0, now.Add(-time.Hour), now.Add(-time.Hour), time.Time{}}}, withKeys(db, 1000))
	for _, statement := range []string{"VACUUM ANALYZE outbox_event", "SET plan_cache_mode = force_generic_plan"} {
		_, err := db.ExecContext(ctx, statement)
		require.NoError(t, err)
	}
	rec := &recorded{DB: db.DB}
	for range 3 { // pgx prepares a statement that comes again
		_, err := store.Claim(ctx, rec, outbox.ClaimQuery{Now: now, Limit: readBatch, EventIDs: []string{"e"}, Lease: "me/1", LeaseDuration: time.Hour})
		require.NoError(t, err)
		_, err = store.ReadRuns(ctx, rec, outbox.RunQuery{Now: now, LeaseDuration: time.Hour, Length: 2, Limit: readBatch})
		require.NoError(t, err)
		_, err = store.ReadTenants(ctx, rec, outbox.TenantQuery{Now: now, Length: 2, Limit: readBatch})
		require.NoError(t, err)
	}
	compiles := 100_000.0 // the default of jit_above_cost
	for _, s := range rec.statements {
		require.Less(t, totalCost(t, db, s), compiles, s.text)
	}
}

// totalCost is the estimate for a statement as the session has prepared it.
func totalCost(t *testing.T, db *testdb.DB, s statement) float64 {
	t.Helper()
	var name, text string
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT name FROM pg_prepared_statements WHERE statement = $1", s.text).Scan(&name))
	literals := make([]string, len(s.args))
	for i, arg := range s.args {
		literals[i] = "'" + strings.ReplaceAll(fmt.Sprint(arg), "'", "''") + "'"
	}
	require.NoError(t, db.QueryRowContext(t.Context(), "EXPLAIN (FORMAT JSON) EXECUTE "+name+"("+strings.Join(literals, ", ")+")").Scan(&text))
	var plans []struct {
		Plan struct {
			Cost float64 `json:"Total Cost"`
		}
	}
	require.NoError(t, json.Unmarshal([]byte(text), &plans))
	return plans[0].Plan.Cost
}
