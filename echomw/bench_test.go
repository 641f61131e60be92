package echomw_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/echomw"
	"github.com/outboxkit/outbox-go/internal/adaptertest"
)

// discarding is a response writer that costs nothing.
type discarding struct{ header http.Header }

func (d *discarding) Header() http.Header         { return d.header }
func (d *discarding) Write(b []byte) (int, error) { return len(b), nil }
func (d *discarding) WriteHeader(int)             {}

// The same request with a transaction by hand and with the middleware, on a
// driver that does nothing.
func BenchmarkRequest(b *testing.B) {
	db := sqltx.OpenDB(adaptertest.NoDriver{})
	defer func() { _ = db.Close() }()
	writer, _ := adaptertest.WriterWithoutTable(b, db, "sqlite")
	adapter := adaptertest.Adapter(b, db, writer)
	order := map[string]any{"order_id": "o-1", "quantity": 3}
	e := echo.New()
	e.POST("/sql", func(c echo.Context) error { // without the outbox: what the driver's transaction costs
		tx, err := db.BeginTx(c.Request().Context(), nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		if _, err := tx.ExecContext(c.Request().Context(), "INSERT INTO orders (id) VALUES (1)"); err != nil {
			return err
		}
		if err := tx.Commit(); err != nil {
			return err
		}
		return c.JSON(http.StatusCreated, order)
	})
	e.POST("/hand", func(c echo.Context) error {
		tx, err := db.BeginTx(c.Request().Context(), nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		if _, err := tx.ExecContext(c.Request().Context(), "INSERT INTO orders (id) VALUES (1)"); err != nil {
			return err
		}
		if err := tx.Commit(); err != nil {
			return err
		}
		return c.JSON(http.StatusCreated, order)
	})
	e.POST("/middleware", func(c echo.Context) error {
		tx, _ := adapter.TxFrom(c.Request().Context())
		if _, err := tx.ExecContext(c.Request().Context(), "INSERT INTO orders (id) VALUES (1)"); err != nil {
			return err
		}
		return c.JSON(http.StatusCreated, order)
	}, echomw.Transaction(adapter))
	for _, path := range []string{"/sql", "/hand", "/middleware"} {
		b.Run(path[1:], func(b *testing.B) {
			request := httptest.NewRequestWithContext(b.Context(), http.MethodPost, path, nil)
			writer := &discarding{header: http.Header{}}
			b.ReportAllocs()
			for b.Loop() {
				clear(writer.header)
				e.ServeHTTP(writer, request)
			}
			require.NotEmpty(b, writer.header.Get(echo.HeaderContentType))
		})
	}
}
