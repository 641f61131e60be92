package fxprom_test

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/fx"

	outboxfx "github.com/outboxkit/outbox-go/fxmodule"
	"github.com/outboxkit/outbox-go/fxmodule/fxprom"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// The metrics of the outbox, and those of its table, are registered while the app runs.
func ExampleMetrics() {
	registry := prometheus.NewRegistry() // or nil, which is prometheus.DefaultRegisterer
	app := fx.New(
		fx.NopLogger,
		fx.Supply(new(sql.DB)), // in a service: fx.Provide a function that calls sqltx.Open
		outboxfx.NewModule(
			fxprom.Metrics(registry),
			outboxfx.WithStore(outboxtest.NewStore()), // in a service the module asks the database
		),
	)
	ctx := context.Background()
	if err := app.Start(ctx); err != nil {
		fmt.Println(err)
		return
	}
	families, err := registry.Gather() // what promhttp.Handler does at a scrape
	if err != nil {
		fmt.Println(err)
	}
	for _, family := range families {
		if family.GetName() == "outbox_table_up" {
			fmt.Println(family.GetName(), family.GetMetric()[0].GetGauge().GetValue())
		}
	}
	if err := app.Stop(ctx); err != nil {
		fmt.Println(err)
	}
	// Output:
	// outbox_table_up 1
}
