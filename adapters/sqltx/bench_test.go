package sqltx_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// nothing is a driver whose transactions do nothing, so that the benchmarks show
// the tap and not a database.
type nothing = adaptertest.NoDriver

const benchStatement = "INSERT INTO orders (id) VALUES (1)"

// eachPool runs fn on a plain pool, a followed one, and one that borrows.
func eachPool(b *testing.B, fn func(b *testing.B, db *sql.DB)) {
	for _, pool := range []struct {
		name string
		of   func(plain *sql.DB) *sql.DB
	}{
		{"plain", func(plain *sql.DB) *sql.DB { return plain }},
		{"followed", func(*sql.DB) *sql.DB { return sqltx.OpenDB(nothing{}) }},
		{"watched", sqltx.Watch},
	} {
		b.Run(pool.name, func(b *testing.B) {
			plain := adaptertest.Nothing(b)
			db := pool.of(plain)
			defer func() { require.NoError(b, db.Close()) }()
			b.ReportAllocs()
			fn(b, db)
		})
	}
}

// What a program pays that has nothing to do with the outbox.
func BenchmarkStatement(b *testing.B) {
	eachPool(b, func(b *testing.B, db *sql.DB) {
		for b.Loop() {
			_, err := db.ExecContext(b.Context(), benchStatement)
			require.NoError(b, err)
		}
	})
}

func BenchmarkTransaction(b *testing.B) {
	ctx, cancel := context.WithCancel(b.Context()) // as a request's is
	defer cancel()
	eachPool(b, func(b *testing.B, db *sql.DB) { benchmarkCommit(ctx, b, db, 0) })
}

func BenchmarkTransactionOf10Statements(b *testing.B) {
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	eachPool(b, func(b *testing.B, db *sql.DB) { benchmarkCommit(ctx, b, db, 10) })
}

func benchmarkCommit(ctx context.Context, b *testing.B, db *sql.DB, statements int) {
	for b.Loop() {
		tx, err := db.BeginTx(ctx, nil)
		require.NoError(b, err)
		for range statements {
			_, err = tx.ExecContext(ctx, benchStatement)
			require.NoError(b, err)
		}
		require.NoError(b, tx.Commit())
	}
}

// BenchmarkTransactionOfOneWrite is all of it: BEGIN, an event, COMMIT.
func BenchmarkTransactionOfOneWrite(b *testing.B) {
	db := sqltx.OpenDB(nothing{})
	defer func() { require.NoError(b, db.Close()) }()
	writer, _ := adaptertest.WriterWithoutTable(b, db, "")
	a := adaptertest.Adapter(b, db, writer)
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	b.Run("RunInTx", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			require.NoError(b, a.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
				_, err := a.Write(ctx, tx, event())
				return err
			}))
		}
	})
	b.Run("BeginTx", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			tx, err := db.BeginTx(ctx, nil)
			require.NoError(b, err)
			_, err = a.Write(ctx, tx, event())
			require.NoError(b, err)
			require.NoError(b, tx.Commit())
		}
	})
}

// Write alone: many in one transaction.
func BenchmarkWrite(b *testing.B) {
	const each = 1000 // a transaction keeps its callbacks
	db := sqltx.OpenDB(nothing{})
	defer func() { require.NoError(b, db.Close()) }()
	writer, _ := adaptertest.WriterWithoutTable(b, db, "")
	a := adaptertest.Adapter(b, db, writer)
	b.ReportAllocs()
	var tx *sql.Tx
	for n := 0; b.Loop(); n++ {
		if n%each == 0 {
			if n > 0 {
				require.NoError(b, tx.Rollback())
			}
			var err error
			tx, err = db.BeginTx(b.Context(), nil)
			require.NoError(b, err)
		}
		_, err := a.Write(b.Context(), tx, event())
		require.NoError(b, err)
	}
	require.NoError(b, tx.Rollback())
}

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
	a := adaptertest.Adapter(b, db, statementsWriter(b, db))
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

// BenchmarkManyEvents is a transaction with 100 events.
func BenchmarkManyEvents(b *testing.B) {
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	db := sqltx.OpenDB(nothing{})
	defer func() { require.NoError(b, db.Close()) }()
	a := adaptertest.Adapter(b, db, statementsWriter(b, db))
	envs := make([]outbox.Envelope, 100)
	for i := range envs {
		payload := fmt.Sprintf(`{"n":%d,"order":"%s"}`, i, strings.Repeat("x", 180))
		envs[i] = outbox.Envelope{EventType: "OrderPlaced", AggregateType: "Order", AggregateID: "o-1", Payload: outbox.RawJSON(payload)}
	}
	b.ReportAllocs()
	for b.Loop() {
		require.NoError(b, a.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
			_, err := a.WriteAll(ctx, tx, envs)
			return err
		}))
	}
}

// statementsWriter is a writer that builds PostgreSQL's statements. With a schema in the table's
// name, the store does not ask the database for the schema.
func statementsWriter(b *testing.B, db *sql.DB) *outbox.Writer {
	b.Helper()
	store := sqlstore.Postgres(sqlstore.WithTable("public.outbox_event"))
	ob, err := outbox.New(outbox.Config{DB: db, Store: store, Mode: outbox.WriterOnly{}})
	require.NoError(b, err)
	return ob.Writer()
}
