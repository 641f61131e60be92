package sqltx_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/internal/adaptertest"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// BenchmarkEvent is a transaction with one event, by hand on a plain pool and
// through the outbox: the difference is what an event costs its process.
func BenchmarkEvent(b *testing.B) {
	ctx, cancel := context.WithCancel(b.Context()) // as a request's is
	defer cancel()
	payload := `{"order":"` + strings.Repeat("x", 186) + `"}`
	b.Run("by hand", func(b *testing.B) {
		db := adaptertest.Nothing(b)
		const insert = "INSERT INTO outbox_event (event_id, event_type, aggregate_type, aggregate_id, tenant_id, payload, headers," +
			" status, attempts, available_at, created_at, locked_by, locked_at) VALUES ($1,$2,$3,$4,$5,$6,$7,0,0,$8,$9,NULL,NULL)"
		b.ReportAllocs()
		for b.Loop() {
			tx, err := db.BeginTx(ctx, nil)
			require.NoError(b, err)
			now := time.Now()
			_, err = tx.ExecContext(ctx, insert, "01K7Q2D0000000000000000000", "OrderPlaced", "Order", "o-1", nil, payload, nil, now, now)
			require.NoError(b, err)
			require.NoError(b, tx.Commit())
		}
	})
	db := sqltx.OpenDB(nothing{})
	defer func() { require.NoError(b, db.Close()) }()
	writer, err := outbox.NewWriter(outbox.WriterConfig{Store: sqlstore.Postgres(), Source: db})
	require.NoError(b, err)
	a := adaptertest.Adapter(b, db, writer)
	event := outbox.Envelope{EventType: "OrderPlaced", AggregateType: "Order", AggregateID: "o-1", Payload: outbox.RawJSON(payload)}
	b.Run("RunInTx", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			require.NoError(b, a.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
				_, err := a.Write(ctx, tx, event)
				return err
			}))
		}
	})
	b.Run("BeginTx", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			tx, err := db.BeginTx(ctx, nil)
			require.NoError(b, err)
			_, err = a.Write(ctx, tx, event)
			require.NoError(b, err)
			require.NoError(b, tx.Commit())
		}
	})
}
