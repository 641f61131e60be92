package webtest

import (
	"context"
	"database/sql"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/outbox"
)

// Order is the answer of a handler in a benchmark.
var Order = map[string]any{"order_id": "o-1", "quantity": 3}

// BenchShop is a pool on a driver that does nothing.
type BenchShop struct {
	db      *sql.DB
	Adapter *sqltx.Adapter
}

const insertOrder = "INSERT INTO orders (id) VALUES (1)"

// NewBenchShop opens a BenchShop.
func NewBenchShop(b *testing.B) BenchShop {
	b.Helper()
	db := sqltx.OpenDB(adaptertest.NoDriver{})
	b.Cleanup(func() { _ = db.Close() })
	writer, _ := adaptertest.WriterWithoutTable(b, db, "sqlite")
	return BenchShop{db, adaptertest.Adapter(b, db, writer)}
}

// ByHand begins and commits a transaction with an order.
func (s BenchShop) ByHand(ctx context.Context) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(ctx, insertOrder); err != nil {
		return err
	}
	return tx.Commit()
}

// InTx writes an order in the request's transaction.
func (s BenchShop) InTx(ctx context.Context) error {
	tx, ok := s.Adapter.TxFrom(ctx)
	if !ok {
		return outbox.ErrNoTransaction
	}
	_, err := tx.ExecContext(ctx, insertOrder)
	return err
}

// discarding is a response writer that costs nothing.
type discarding struct{ header http.Header }

func (d *discarding) Header() http.Header         { return d.header }
func (d *discarding) Write(b []byte) (int, error) { return len(b), nil }
func (d *discarding) WriteHeader(int)             {}

// Benchmark compares a handler that begins and commits by hand, under /hand, with
// the middleware, under /middleware.
func Benchmark(b *testing.B, app func(shop BenchShop) http.Handler) {
	b.Helper()
	handler := app(NewBenchShop(b))
	for _, path := range []string{"/hand", "/middleware"} {
		b.Run(path[1:], func(b *testing.B) {
			request := httptest.NewRequestWithContext(b.Context(), http.MethodPost, path, nil)
			writer := &discarding{header: http.Header{}}
			b.ReportAllocs()
			for b.Loop() {
				clear(writer.header)
				handler.ServeHTTP(writer, request)
			}
			require.NotEmpty(b, writer.header.Get("Content-Type"))
		})
	}
}
