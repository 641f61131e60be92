package ginmw_test

import (
	"io"
	"net/http"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/ginmw"
	"github.com/outboxkit/outbox-go/internal/testing/webtest"
)

func init() { gin.SetMode(gin.TestMode) } //nolint:gochecknoinits // gin's mode is global.

func TestSuite(t *testing.T) {
	t.Parallel()
	webtest.Run(t, webtest.Framework{NoInformational: true, New: func(t *testing.T, app webtest.App) http.Handler {
		r := newGin()
		for _, config := range app.Transactions {
			own := ginmw.TransactionConfig{
				Transactor: config.Transactor, TxOptions: config.TxOptions,
				MaxBuffer: config.MaxBuffer, ReadBody: config.ReadBody, ReadOnlyMethods: config.ReadOnlyMethods,
				Idempotency: config.Idempotency, Retries: config.Retries,
			}
			if config.Skipper != nil {
				own.Skipper = func(c *gin.Context) bool { return config.Skipper(c.Request) }
			}
			if config.RollbackOn != nil {
				own.RollbackOn = func(c *gin.Context, status int, _ error) bool {
					return config.RollbackOn(c.Request, status, c.Writer.Header())
				}
			}
			mw, err := own.ToMiddleware()
			require.NoError(t, err)
			r.Use(mw)
		}
		for path, handler := range app.Routes {
			r.Any(path, func(c *gin.Context) {
				if err := handler(c.Writer, c.Request); err != nil {
					_ = c.Error(err)
				}
			})
		}
		if app.Outbox != nil {
			r.GET("/healthz", ginmw.Health(ginmw.HealthConfig{Outbox: app.Outbox}))
			ginmw.Admin(r.Group("/admin"), app.Outbox, app.Access)
		}
		return r
	}})
}

// newGin is an engine with a middleware that answers errors, as gin's guide has it.
func newGin() *gin.Engine {
	r := gin.New()
	r.UseRawPath = true
	r.Use(gin.RecoveryWithWriter(io.Discard), func(c *gin.Context) {
		c.Next()
		if len(c.Errors) > 0 && !c.Writer.Written() {
			c.String(http.StatusInternalServerError, webtest.Text(c.Errors.Last().Err))
		}
	})
	return r
}
