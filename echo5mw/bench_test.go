package echo5mw_test

import (
	"net/http"
	"testing"

	"github.com/labstack/echo/v5"

	"github.com/outboxkit/outbox-go/echo5mw"
	"github.com/outboxkit/outbox-go/internal/testing/webtest"
)

func BenchmarkRequest(b *testing.B) {
	webtest.Benchmark(b, func(shop webtest.BenchShop) http.Handler {
		e := echo.New()
		e.POST("/hand", func(c *echo.Context) error {
			if err := shop.ByHand(c.Request().Context()); err != nil {
				return err
			}
			return c.JSON(http.StatusCreated, webtest.Order)
		})
		e.POST("/middleware", func(c *echo.Context) error {
			if err := shop.InTx(c.Request().Context()); err != nil {
				return err
			}
			return c.JSON(http.StatusCreated, webtest.Order)
		}, echo5mw.Transaction(shop.Adapter))
		return e
	})
}
