// Multi-ds is an app with two databases, each with its own outbox: orders with GORM, the inventory
// with bun. Each request writes to both databases, in a transaction of each, and a listener
// that both outboxes share keeps a ledger.
//
//	go run ./samples/multi-ds
//	ORDERS_URL=postgres://… INVENTORY_URL=mysql://… go run ./samples/multi-ds
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"go.uber.org/fx"
	"go.uber.org/fx/fxevent"

	outboxfx "github.com/outboxkit/outbox-go/fxmodule"
	"github.com/outboxkit/outbox-go/fxmodule/outboxconf"
)

// The names of the data sources.
const (
	ordersName    = "orders"
	inventoryName = "inventory"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "multi-ds:", err)
		os.Exit(1)
	}
}

func run() (err error) {
	dir, err := os.MkdirTemp("", "multi-ds")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	slog.SetDefault(slog.New(slog.DiscardHandler)) // the failures are intended

	var desk *desk
	var ledger *ledger
	app := newApp(dir, fx.Populate(&desk, &ledger))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := app.Start(ctx); err != nil {
		return err
	}
	err = show(ctx, desk, ledger)
	return errors.Join(err, app.Stop(ctx))
}

// newApp has a module for each of the two data sources. Everything that belongs to a data source
// carries the name of the data source.
func newApp(dir string, more ...fx.Option) *fx.App {
	config := func(name string) func() (outboxfx.Config, error) {
		return func() (outboxfx.Config, error) { // variables OUTBOX_ORDERS_… and OUTBOX_INVENTORY_…
			config, err := outboxconf.Load("", outboxconf.Named(name))
			config.CreateSchema = true
			return config, err
		}
	}
	return fx.New(
		dataSource(ordersName, os.Getenv("ORDERS_URL"), filepath.Join(dir, "orders.db")),
		dataSource(inventoryName, os.Getenv("INVENTORY_URL"), filepath.Join(dir, "inventory.db")),
		outboxfx.NewModule(outboxfx.Named(ordersName), outboxfx.WithConfig(config(ordersName))),
		outboxfx.NewModule(outboxfx.Named(inventoryName), outboxfx.WithConfig(config(inventoryName))),
		fx.Provide(
			fx.Annotate(newOrders, fx.ParamTags(`name:"orders"`, `name:"orders"`)),
			fx.Annotate(newInventory, fx.ParamTags(`name:"inventory"`, `name:"inventory"`)),
			newDesk,
			newLedger,
		),
		outboxfx.AsListener(
			func(l *ledger) *ledger { return l },
			outboxfx.On("Order", "OrderPlaced"), outboxfx.On("Order", "OrderCancelled"), outboxfx.On("Stock", "StockReserved"),
			outboxfx.For(ordersName, inventoryName),
		),
		fx.WithLogger(func() fxevent.Logger { return fxevent.NopLogger }),
		fx.Options(more...),
	)
}
