package outboxpgx_test

import (
	"context"
	"database/sql"
	"log/slog"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	outboxpgx "github.com/outboxkit/outbox-go/adapters/pgx"
	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// benchmarked is a database with a table of orders and one of events, a followed
// pool on it, and a plain one.
func benchmarked(b *testing.B) (followed, plain *pgxpool.Pool, dsn string) {
	b.Helper()
	db := testdb.Open(b, testdb.Main()[0])
	require.NoError(b, sqlstore.Postgres().CreateSchema(b.Context(), db.DB))
	_, err := db.ExecContext(b.Context(), "CREATE TABLE orders (id BIGSERIAL PRIMARY KEY, customer TEXT NOT NULL, total INTEGER NOT NULL)")
	require.NoError(b, err)
	return newPool(b, db.DSN, follow), newPool(b, db.DSN), db.DSN
}

const insertOrder = "INSERT INTO orders (customer, total) VALUES ($1, $2)"

func benchWriter(b *testing.B, db *sql.DB) *outbox.Writer {
	b.Helper()
	ob, err := outbox.New(outbox.Config{DB: db, Store: sqlstore.Postgres(), Logger: slog.New(slog.DiscardHandler), Mode: outbox.WriterOnly{}})
	require.NoError(b, err)
	return ob.Writer()
}

// interleave runs the ways by turns, so that all see the same machine, and reports
// the median time of each, and its rate against the first.
func interleave(b *testing.B, names []string, ways map[string]func()) {
	b.Helper()
	took := map[string][]time.Duration{}
	for _, way := range ways { // prepares the statements
		way()
	}
	for n := 0; b.Loop(); n++ {
		for i := range names {
			name := names[(i+n)%len(names)]
			began := time.Now()
			ways[name]()
			took[name] = append(took[name], time.Since(began))
		}
	}
	median := func(name string) float64 {
		slices.Sort(took[name])
		return float64(took[name][len(took[name])/2].Nanoseconds()) / 1000
	}
	for _, name := range names {
		b.ReportMetric(median(name), name+"-µs")
		b.ReportMetric(median(names[0])/median(name), name+"-rate")
	}
	b.ReportMetric(0, "ns/op")
}

// BenchmarkWriteAgainstStdlib is a transaction with an order and an event, with
// database/sql and without.
func BenchmarkWriteAgainstStdlib(b *testing.B) {
	pool, _, dsn := benchmarked(b)
	ctx := b.Context()
	db, err := sqltx.Open("pgx", dsn)
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, db.Close()) })
	std, err := sqltx.New(db, benchWriter(b, db))
	require.NoError(b, err)
	a, err := outboxpgx.New(pool, benchWriter(b, closing(b, outboxpgx.DB(pool))))
	require.NoError(b, err)
	interleave(b, []string{"stdlib", "pgx"}, map[string]func(){
		"stdlib": func() {
			require.NoError(b, std.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
				if _, err := tx.ExecContext(ctx, insertOrder, "c", 1); err != nil {
					return err
				}
				_, err := std.Write(ctx, tx, order)
				return err
			}))
		},
		"pgx": func() {
			require.NoError(b, pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				if _, err := tx.Exec(ctx, insertOrder, "c", 1); err != nil {
					return err
				}
				_, err := a.Write(ctx, tx, order)
				return err
			}))
		},
	})
}

const insertEvent = "INSERT INTO outbox_event (event_id, event_type, aggregate_type, aggregate_id, payload, status, attempts, available_at, created_at)" +
	" VALUES ($1, $2, $3, $4, $5, 0, 0, $6, $6)"

// BenchmarkQueue is a transaction with a batch of three statements: without an
// event, with the event's row inserted by hand, and with Queue. The last way writes
// the event after the batch.
func BenchmarkQueue(b *testing.B) {
	pool, plain, _ := benchmarked(b)
	ctx := b.Context()
	a, err := outboxpgx.New(pool, benchWriter(b, closing(b, outboxpgx.DB(pool))))
	require.NoError(b, err)
	inTx := func(pool *pgxpool.Pool, queue func(batch *pgx.Batch) error, after func(tx pgx.Tx) error) func() {
		return func() {
			require.NoError(b, pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				batch := &pgx.Batch{}
				for range 3 {
					batch.Queue(insertOrder, "c", 1)
				}
				if err := queue(batch); err != nil {
					return err
				}
				if err := tx.SendBatch(ctx, batch).Close(); err != nil {
					return err
				}
				return after(tx)
			}))
		}
	}
	nothing := func(*pgx.Batch) error { return nil }
	end := func(pgx.Tx) error { return nil }
	ids := 0
	interleave(b, []string{"by-hand", "without", "followed", "queue", "write"}, map[string]func(){
		"without":  inTx(plain, nothing, end),
		"followed": inTx(pool, nothing, end),
		"by-hand": inTx(plain, func(batch *pgx.Batch) error {
			ids++
			batch.Queue(insertEvent, strconv.Itoa(ids), "OrderPlaced", "Order", "1", "1", time.Now())
			return nil
		}, end),
		"queue": inTx(pool, func(batch *pgx.Batch) error {
			_, err := a.Queue(ctx, batch, order)
			return err
		}, end),
		"write": inTx(pool, nothing, func(tx pgx.Tx) error {
			_, err := a.Write(ctx, tx, order)
			return err
		}),
	})
}

// What a program pays that has nothing to do with the outbox: a transaction with no
// statement and one with ten.
func BenchmarkTransaction(b *testing.B) {
	followed, plain, _ := benchmarked(b)
	for name, pool := range map[string]*pgxpool.Pool{"plain": plain, "followed": followed} {
		for _, statements := range []int{0, 10} {
			b.Run(name+"/"+strconv.Itoa(statements), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					require.NoError(b, pgx.BeginFunc(b.Context(), pool, func(tx pgx.Tx) error {
						for range statements {
							if _, err := tx.Exec(b.Context(), "SELECT 1"); err != nil {
								return err
							}
						}
						return nil
					}))
				}
			})
		}
	}
}
