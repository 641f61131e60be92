package fibermw_test

import (
	"net/http"
	"testing"

	"github.com/gofiber/fiber/v3"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/outboxkit/outbox-go/fibermw"
	"github.com/outboxkit/outbox-go/internal/testing/webtest"
)

// BenchmarkRequest compares a handler that begins and commits by hand with the middleware, as the
// benchmarks of the other frameworks do, without a connection.
func BenchmarkRequest(b *testing.B) {
	shop := webtest.NewBenchShop(b)
	app := fiber.New()
	app.Post("/hand", func(c fiber.Ctx) error {
		if err := shop.ByHand(c.Context()); err != nil {
			return err
		}
		return c.Status(http.StatusCreated).JSON(webtest.Order)
	})
	app.Post("/middleware", fibermw.Transaction(shop.Adapter), func(c fiber.Ctx) error {
		if err := shop.InTx(c.Context()); err != nil {
			return err
		}
		return c.Status(http.StatusCreated).JSON(webtest.Order)
	})
	handler := app.Handler()
	for _, path := range []string{"/hand", "/middleware"} {
		b.Run(path[1:], func(b *testing.B) {
			var request fasthttp.RequestCtx
			request.Request.Header.SetMethod(http.MethodPost)
			request.Request.SetRequestURI(path)
			b.ReportAllocs()
			for b.Loop() {
				request.Response.Reset()
				handler(&request)
			}
			require.Equal(b, http.StatusCreated, request.Response.StatusCode())
		})
	}
}
