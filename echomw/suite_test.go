package echomw_test

import (
	"io"
	"net/http"
	"testing"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/echomw"
	"github.com/outboxkit/outbox-go/internal/testing/webtest"
)

func TestSuite(t *testing.T) {
	t.Parallel()
	webtest.Run(t, webtest.Framework{New: func(t *testing.T, app webtest.App) http.Handler {
		e := newEcho()
		e.Use(middleware.RecoverWithConfig(middleware.RecoverConfig{DisablePrintStack: true}))
		for _, config := range app.Transactions {
			own := echomw.TransactionConfig{
				Transactor: config.Transactor, TxOptions: config.TxOptions,
				MaxBuffer: config.MaxBuffer, ReadBody: config.ReadBody, ReadOnlyMethods: config.ReadOnlyMethods,
				Idempotency: config.Idempotency, Retries: config.Retries,
			}
			if config.Skipper != nil {
				own.Skipper = func(c echo.Context) bool { return config.Skipper(c.Request()) }
			}
			if config.RollbackOn != nil {
				own.RollbackOn = func(c echo.Context, status int, _ error) bool {
					return config.RollbackOn(c.Request(), status, c.Response().Header())
				}
			}
			mw, err := own.ToMiddleware()
			require.NoError(t, err)
			e.Use(mw)
		}
		for path, handler := range app.Routes {
			e.Any(path, func(c echo.Context) error { return handler(c.Response(), c.Request()) })
		}
		if app.Outbox != nil {
			e.GET("/healthz", echomw.Health(echomw.HealthConfig{Outbox: app.Outbox}))
			echomw.Admin(e.Group("/admin"), app.Outbox, app.Access)
		}
		return e
	}})
}

func newEcho() *echo.Echo {
	e := echo.New()
	e.Logger.SetOutput(io.Discard)
	e.StdLogger.SetOutput(io.Discard)
	e.HTTPErrorHandler = func(err error, c echo.Context) {
		if !c.Response().Committed {
			_ = c.String(http.StatusInternalServerError, webtest.Text(err))
		}
	}
	return e
}
