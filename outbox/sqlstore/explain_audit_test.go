package sqlstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

// A page of the audit log is a range of the primary key, and a write reads no entries.
func TestTheAuditLogCostsWhatItReturns(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		ctx, store := t.Context(), storeFor(db.Kind)
		require.NoError(t, store.CreateSchema(ctx, db.DB))
		const entries = 300
		for i := range entries {
			require.NoError(t, store.RecordChange(ctx, db.DB, outbox.AuditEntry{ID: fmt.Sprintf("%06d", i), At: time.Now()}, time.Hour))
		}
		if db.Kind == testdb.Postgres {
			_, err := db.ExecContext(ctx, "ANALYZE outbox_event_control")
			require.NoError(t, err)
		}
		db.SetMaxOpenConns(1) // MySQL's counters are per session
		for _, before := range []string{"", "000150"} {
			rec := &recorded{DB: db.DB}
			cost := costOf(t, db, rec, func() {
				list, err := store.Audit(ctx, rec, before, 10)
				require.NoError(t, err)
				require.Len(t, list, 10)
			})
			require.Less(t, cost, 50, before)
		}
		rec := &recorded{DB: db.DB}
		require.NoError(t, store.RecordChange(ctx, rec, outbox.AuditEntry{ID: "x", At: time.Now()}, time.Hour))
		require.Len(t, rec.statements, 1, "a write is one statement")
		for want := entries; want > 0; {
			n, err := store.ForgetChanges(ctx, rec, 1, 120)
			require.NoError(t, err)
			require.Equal(t, min(want, 120), n)
			want -= n
		}
	})
}
