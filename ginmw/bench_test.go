package ginmw_test

import (
	"net/http"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/outboxkit/outbox-go/ginmw"
	"github.com/outboxkit/outbox-go/internal/testing/webtest"
)

func BenchmarkRequest(b *testing.B) {
	webtest.Benchmark(b, func(shop webtest.BenchShop) http.Handler {
		r := gin.New()
		r.POST("/hand", func(c *gin.Context) {
			if err := shop.ByHand(c.Request.Context()); err != nil {
				_ = c.Error(err)
				return
			}
			c.JSON(http.StatusCreated, webtest.Order)
		})
		r.POST("/middleware", ginmw.Transaction(shop.Adapter), func(c *gin.Context) {
			if err := shop.InTx(c.Request.Context()); err != nil {
				_ = c.Error(err)
				return
			}
			c.JSON(http.StatusCreated, webtest.Order)
		})
		return r
	})
}
