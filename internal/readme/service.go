package readme

import (
	"context"
	"errors"
	"log"
	"net/http"

	"github.com/labstack/echo/v5"
	"go.uber.org/fx"

	outboxgorm "github.com/outboxkit/outbox-go/adapters/gorm"
	"github.com/outboxkit/outbox-go/echomw/v5"
	outboxfx "github.com/outboxkit/outbox-go/fxmodule"
	"github.com/outboxkit/outbox-go/outbox"
)

// NewApp is the example, for the test to run.
var NewApp = newApp

// What follows is exactly the README's block.

func newApp(database fx.Option) *fx.App { // in main: newApp(…).Run()
	return fx.New(
		database, // provides *sql.DB, and *gorm.DB on it
		outboxfx.Module, fx.Replace(outboxfx.Config{CreateSchema: true}),
		outboxfx.AsBinding(newOrderListener), fx.Provide(outboxgorm.New, newServer),
		fx.Invoke(func(lc fx.Lifecycle, s *http.Server, app fx.Shutdowner) {
			lc.Append(fx.StartStopHook(func() {
				go func() {
					if err := s.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
						log.Print(err)
						app.Shutdown(fx.ExitCode(1))
					}
				}()
			}, s.Shutdown))
		}),
	)
}

func newServer(a *outboxgorm.Adapter) *http.Server {
	e := echo.New()
	e.Use(echomw.Transaction(a)) // the response leaves only after the commit
	e.POST("/orders/:item", func(c *echo.Context) error {
		ctx, o := c.Request().Context(), order{ID: "o-1", Item: c.Param("item")}
		tx, _ := a.TxFrom(ctx)
		if err := tx.Create(&o).Error; err != nil {
			return err
		}
		if _, err := a.Write(ctx, tx, orderPlaced.Envelope(o.ID, o)); err != nil {
			return err
		}
		return c.JSON(http.StatusCreated, o)
	})
	return &http.Server{Addr: "127.0.0.1:8080", Handler: e}
}

func newOrderListener() outbox.Binding {
	return orderPlaced.Listen(func(ctx context.Context, o order, env outbox.Envelope) error {
		return sendMail(ctx, env.EventID, o) // after the commit, at least once
	})
}
