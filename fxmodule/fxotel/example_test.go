package fxotel_test

import (
	"context"
	"database/sql"
	"fmt"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.uber.org/fx"

	outboxotel "github.com/outboxkit/outbox-go/adapters/otel"
	outboxfx "github.com/outboxkit/outbox-go/fxmodule"
	"github.com/outboxkit/outbox-go/fxmodule/fxotel"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// Without options the global providers get the metrics and the traces.
func Example() {
	meters := sdkmetric.NewMeterProvider() // with a reader and an exporter in a service
	traces := sdktrace.NewTracerProvider()
	app := fx.New(
		fx.NopLogger,
		fx.Supply(new(sql.DB)), // in a service: fx.Provide a function that calls sqltx.Open
		outboxfx.NewModule(
			fxotel.Metrics(outboxotel.WithMeterProvider(meters)),
			fxotel.Tracing(outboxotel.WithTracerProvider(traces), outboxotel.WithProducerSpan()),
			outboxfx.WithStore(outboxtest.NewStore()), // in a service the module asks the database
		),
	)
	ctx := context.Background()
	fmt.Println(app.Start(ctx))
	fmt.Println(app.Stop(ctx))
	// Output:
	// <nil>
	// <nil>
}

// A delivery becomes part of the trace of the request that wrote its event.
func ExampleTracing() {
	option := fxotel.Tracing(outboxotel.WithChildOf())
	fmt.Println(fx.ValidateApp(
		fx.Supply(new(sql.DB)),
		outboxfx.NewModule(option, outboxfx.WithStore(outboxtest.NewStore())),
	))
	// Output:
	// <nil>
}

// The kinds of events are attributes of the metrics, here of at most 100 kinds.
func ExampleMetrics() {
	option := fxotel.Metrics(outboxotel.WithEventKinds(100))
	fmt.Println(fx.ValidateApp(
		fx.Supply(new(sql.DB)),
		outboxfx.NewModule(option, outboxfx.WithStore(outboxtest.NewStore())),
	))
	// Output:
	// <nil>
}
