package echo5mw_test

import (
	"log/slog"
	"net/http"
	"testing"

	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/echo5mw"
	"github.com/outboxkit/outbox-go/internal/testing/webtest"
)

func TestSuite(t *testing.T) {
	t.Parallel()
	webtest.Run(t, webtest.Framework{New: func(t *testing.T, app webtest.App) http.Handler {
		e := newEcho()
		e.Use(middleware.RecoverWithConfig(middleware.RecoverConfig{DisablePrintStack: true}))
		for _, config := range app.Transactions {
			own := echo5mw.TransactionConfig{
				Transactor: config.Transactor, TxOptions: config.TxOptions,
				MaxBuffer: config.MaxBuffer, ReadBody: config.ReadBody, ReadOnlyMethods: config.ReadOnlyMethods,
				Idempotency: config.Idempotency, Retries: config.Retries,
			}
			if config.Skipper != nil {
				own.Skipper = func(c *echo.Context) bool { return config.Skipper(c.Request()) }
			}
			if config.RollbackOn != nil {
				own.RollbackOn = func(c *echo.Context, status int, _ error) bool {
					return config.RollbackOn(c.Request(), status, c.Response().Header())
				}
			}
			mw, err := own.ToMiddleware()
			require.NoError(t, err)
			e.Use(mw)
		}
		for path, handler := range app.Routes {
			e.Any(path, func(c *echo.Context) error { return handler(c.Response(), c.Request()) })
		}
		if app.Outbox != nil {
			e.GET("/healthz", echo5mw.Health(echo5mw.HealthConfig{Outbox: app.Outbox}))
			echo5mw.Admin(e.Group("/admin"), app.Outbox, app.Access)
		}
		return e
	}})
}

func newEcho() *echo.Echo {
	e := echo.New()
	e.Logger = slog.New(slog.DiscardHandler)
	e.HTTPErrorHandler = func(c *echo.Context, err error) {
		if response, _ := echo.UnwrapResponse(c.Response()); !response.Committed {
			_ = c.String(http.StatusInternalServerError, webtest.Text(err))
		}
	}
	return e
}
