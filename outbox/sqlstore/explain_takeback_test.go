package sqlstore_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// recordedTx is a transaction that records the statements of one call.
type recordedTx struct {
	*sql.Tx
	rec *recorded
}

func (r recordedTx) ExecContext(ctx context.Context, q string, args ...any) (sql.Result, error) {
	r.rec.statements = append(r.rec.statements, statement{q, args})
	return r.Tx.ExecContext(ctx, q, args...)
}

func (r recordedTx) QueryContext(ctx context.Context, q string, args ...any) (*sql.Rows, error) {
	r.rec.statements = append(r.rec.statements, statement{q, args})
	return r.Tx.QueryContext(ctx, q, args...)
}

// A change of events that wait reads the events that are named, or the events of the aggregate id. The
// table has 200,000 other rows, of the same kind.
func TestTakingBackReadsTheEventsOfTheChoice(t *testing.T) {
	t.Parallel()
	const keys = 10_000 // of each aggregate id: 10 DONE, 9 due, a retry, one or two delayed
	for name, indexes := range map[string][]sqlstore.Option{
		"key index": {sqlstore.WithKeyIndex()}, "search index": {sqlstore.WithSearchIndex()},
	} {
		for _, statistics := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, statistics %t", name, statistics), func(t *testing.T) {
				t.Parallel()
				testdb.Each(t, testdb.Bulk(), func(t *testing.T, db *testdb.DB) {
					ctx, store := t.Context(), storeFor(db.Kind, indexes...)
					require.NoError(t, store.CreateSchema(ctx, db.DB))
					now := time.Now().UTC().Truncate(time.Second)
					if statistics {
						loadTable(t, db, now, withKeys(db, keys))
					} else {
						noStatistics(t, db)
						loadRows(t, db, tableParts(now), withKeys(db, keys))
					}
					db.SetMaxOpenConns(1) // MySQL's counters are per session
					takingBackCosts(t, db, store, now)
				})
			})
		}
	}
}

func takingBackCosts(t *testing.T, db *testdb.DB, store *sqlstore.Store, now time.Time) {
	t.Helper()
	var kind outbox.EventKind
	var key string
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT aggregate_type, event_type, aggregate_id FROM outbox_event WHERE event_id = 'f00000042'").
		Scan(&kind.AggregateType, &kind.EventType, &key))
	ids := make([]string, readBatch)
	for i := range ids {
		ids[i] = fmt.Sprintf("f%08d", 7*i)
	}
	byKey := outbox.Waiting{Kind: kind, AggregateID: key}
	between := byKey
	between.DueAfter, between.DueBefore = now, now.Add(24*time.Hour)
	content := outbox.Envelope{Payload: outbox.RawJSON("{}")}
	for _, c := range []struct {
		name   string
		which  outbox.Waiting
		change outbox.Change
		limit  int
	}{
		{"cancel by ids", outbox.Waiting{EventIDs: ids}, outbox.Change{Cancel: true}, readLimit},
		{"reschedule by ids", outbox.Waiting{EventIDs: ids}, outbox.Change{AvailableAt: now.Add(time.Hour)}, readLimit},
		{"replace", outbox.Waiting{EventIDs: ids[:1]}, outbox.Change{Content: &content}, 10},
		{"cancel by ids, of which none waits", outbox.Waiting{EventIDs: []string{"d00000001", "p00000001", "x00000001", "none"}}, outbox.Change{Cancel: true}, 40},
		{"cancel by aggregate id", byKey, outbox.Change{Cancel: true}, readBatch},
		{"cancel by aggregate id and due time", between, outbox.Change{Cancel: true}, readBatch},
		{"reschedule by aggregate id", byKey, outbox.Change{AvailableAt: now.Add(time.Hour)}, readBatch},
	} {
		rec := &recorded{DB: db.DB}
		var n outbox.TakenBack
		cost := costOf(t, db, rec, func() {
			tx, err := db.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			n, err = store.TakeBack(t.Context(), recordedTx{tx, rec}, c.which, c.change)
			require.NoError(t, err, c.name)
			require.NoError(t, tx.Rollback())
		})
		t.Logf("%s reads %d rows: %+v", c.name, cost, n)
		require.Positive(t, n.Changed+n.Delivered, c.name)
		require.LessOrEqual(t, cost, c.limit, "%s: %+v", c.name, n)
	}
}
