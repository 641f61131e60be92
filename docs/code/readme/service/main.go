package main

import (
	"context"
	"net/http"

	"github.com/labstack/echo/v5"
	outboxgorm "github.com/outboxkit/outbox-go/adapters/gorm"
	outboxfx "github.com/outboxkit/outbox-go/fxmodule"
	"github.com/outboxkit/outbox-go/outbox"
	"go.uber.org/fx"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
)

type order struct{ ID, Item string }

var orderPlaced = outbox.NewTopic[order]("Order", "OrderPlaced")

func main() {
	db, err := gorm.Open(postgres.Open("postgres://postgres@localhost/postgres"), outboxgorm.Plugin{})
	fx.New(fx.Error(err), fx.Supply(db), fx.Provide(echo.New, (*gorm.DB).DB, outboxgorm.New),
		outboxfx.Module, fx.Replace(outboxfx.Config{CreateSchema: true}),
		fx.Invoke(func(db *gorm.DB) error { return db.AutoMigrate(&order{}) }, serve)).Run()
}

func serve(lc fx.Lifecycle, e *echo.Echo, db *gorm.DB, ob *outbox.Outbox, a *outboxgorm.Adapter) error {
	e.POST("/orders/:id/:item", func(c *echo.Context) error {
		o := order{c.Param("id"), c.Param("item")}
		return db.Transaction(func(tx *gorm.DB) error { // both rows, or neither
			if err := tx.Create(&o).Error; err != nil {
				return err
			}
			_, err := a.Write(c.Request().Context(), tx, orderPlaced.Envelope(o.ID, o))
			return err
		})
	})
	s := &http.Server{Addr: ":8080", Handler: e}
	lc.Append(fx.StartStopHook(func() { go func() { e.Logger.Info("ended", "why", s.ListenAndServe()) }() }, s.Shutdown))
	return ob.Register(orderPlaced.Listen(func(_ context.Context, o order, env outbox.Envelope) error {
		e.Logger.Info("sending a mail", "order", o.ID, "item", o.Item, "event", env.EventID)
		return nil // after an error the event is delivered again
	}))
}
