package outboxotel_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/outboxkit/outbox-go/adapters/otel"
	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// openShop opens a database with the outbox's table.
func openShop() (db *sql.DB, closeShop func()) {
	dir, err := os.MkdirTemp("", "outboxotel")
	check(err)
	db, err = sqltx.Open("sqlite", "file:"+filepath.Join(dir, "shop.db")+"?_pragma=busy_timeout(5000)")
	check(err)
	check(sqlstore.SQLite().CreateSchema(context.Background(), db))
	return db, func() {
		check(db.Close())
		check(os.RemoveAll(dir))
	}
}

var orderPlaced = outbox.NewTopic[map[string]int]("order", "order.placed")

// place writes an event in a transaction.
func place(ctx context.Context, a *sqltx.Adapter) error {
	return a.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
		_, err := a.Write(ctx, tx, orderPlaced.Envelope("o-1", map[string]int{"total": 42}))
		return err
	})
}

// A request, the write in it, the delivery, and what the listener does.
func Example() {
	ctx := context.Background()
	db, closeShop := openShop()
	defer closeShop()
	exporter := tracetest.NewInMemoryExporter() // an OTLP exporter in real life
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
	defer func() { check(provider.Shutdown(ctx)) }()
	tracer := provider.Tracer("shop")

	opts := []outboxotel.Option{
		outboxotel.WithTracerProvider(provider), // or otel.SetTracerProvider(provider)
		outboxotel.WithProducerSpan(),
		outboxotel.WithChildOf(),
	}
	o, err := outbox.New(outbox.Config{
		DB: db, Store: sqlstore.SQLite(),
		Hooks:        []outbox.WriterHook{outboxotel.Hook(opts...)},
		Interceptors: []outbox.Interceptor{outboxotel.Interceptor(opts...)},
	})
	check(err)
	check(o.Register(orderPlaced.Listen(func(ctx context.Context, _ map[string]int, _ outbox.Envelope) error {
		_, span := tracer.Start(ctx, "send mail")
		defer span.End()
		return nil
	})))
	check(o.Start(ctx))

	requestCtx, request := tracer.Start(ctx, "POST /orders")
	check(place(requestCtx, must(sqltx.New(db, o.Writer()))))
	request.End()
	check(o.Close(ctx)) // delivers what is queued

	spans := exporter.GetSpans()
	slices.SortFunc(spans, func(a, b tracetest.SpanStub) int { return a.StartTime.Compare(b.StartTime) })
	names := map[string]string{}
	for _, s := range spans {
		names[s.SpanContext.SpanID().String()] = s.Name
		fmt.Printf("%s (in: %s)\n", s.Name, names[s.Parent.SpanID().String()])
	}
	fmt.Println("one trace:", spans[0].SpanContext.TraceID() == spans[3].SpanContext.TraceID())
	// Output:
	// POST /orders (in: )
	// write order/order.placed (in: POST /orders)
	// deliver order/order.placed (in: write order/order.placed)
	// send mail (in: deliver order/order.placed)
	// one trace: true
}

// Without an option the delivery has its own trace, with a link.
func ExampleInterceptor() {
	exporter := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
	defer func() { check(provider.Shutdown(context.Background())) }()

	hook := outboxotel.Hook()
	interceptor := outboxotel.Interceptor(outboxotel.WithTracerProvider(provider))

	// The outbox does this when an event is written …
	ctx, request := provider.Tracer("shop").Start(context.Background(), "POST /orders")
	envs, err := hook.BeforeWrite(ctx, []outbox.Envelope{orderPlaced.Envelope("o-1", nil)})
	check(err)
	request.End()
	// … and this when it is delivered, perhaps in another process.
	listener := outbox.ListenerFunc(func(context.Context, outbox.Envelope) error {
		return outbox.Dead(errors.New("no such order"))
	})
	_ = interceptor(listener).OnEvent(context.Background(), envs[0])

	delivery := exporter.GetSpans()[1]
	fmt.Println(delivery.Name, delivery.SpanKind)
	fmt.Println("linked to the request:", delivery.Links[0].SpanContext.SpanID() == request.SpanContext().SpanID())
	fmt.Println(delivery.Status.Code, delivery.Status.Description)
	for _, kv := range delivery.Attributes {
		if kv.Key == "messaging.destination.name" || kv.Key == "outbox.outcome" {
			fmt.Println(kv.Key, "=", kv.Value.AsInterface())
		}
	}
	// Output:
	// deliver order/order.placed consumer
	// linked to the request: true
	// Error no such order
	// messaging.destination.name = order/order.placed
	// outbox.outcome = dead
}

func ExampleNewMetrics() {
	ctx := context.Background()
	db, closeShop := openShop()
	defer closeShop()
	reader := sdkmetric.NewManualReader() // a periodic reader with an exporter in real life
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	defer func() { check(provider.Shutdown(ctx)) }()

	metrics, err := outboxotel.NewMetrics(outboxotel.WithMeterProvider(provider), outboxotel.WithEventKinds(100))
	check(err)
	o, err := outbox.New(outbox.Config{DB: db, Store: sqlstore.SQLite(), Metrics: metrics})
	check(err)
	check(o.Register(orderPlaced.Listen(func(context.Context, map[string]int, outbox.Envelope) error { return nil })))
	check(o.Start(ctx))
	check(place(ctx, must(sqltx.New(db, o.Writer()))))
	check(o.Close(ctx)) // delivers what is queued, and closes the metrics

	var read metricdata.ResourceMetrics
	check(reader.Collect(ctx, &read))
	for _, m := range read.ScopeMetrics[0].Metrics {
		if sum, ok := m.Data.(metricdata.Sum[int64]); ok && sum.DataPoints[0].Value > 0 {
			event, _ := sum.DataPoints[0].Attributes.Value("outbox.event.type")
			fmt.Println(m.Name, event.AsString(), sum.DataPoints[0].Value)
		}
	}
	// Output:
	// outbox.enqueue.hot order.placed 1
	// outbox.dispatch.success order.placed 1
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// A program that only writes needs the hook alone, and one that only delivers the
// interceptor.
func ExampleHook() {
	provider := sdktrace.NewTracerProvider()
	defer func() { check(provider.Shutdown(context.Background())) }()
	ctx, request := provider.Tracer("shop").Start(context.Background(), "POST /orders")
	defer request.End()

	hook := outboxotel.Hook(outboxotel.WithPropagator(propagation.TraceContext{}))
	envs, err := hook.BeforeWrite(ctx, []outbox.Envelope{orderPlaced.Envelope("o-1", nil)}) // the outbox does this
	check(err)
	fmt.Println(len(envs[0].Headers["traceparent"]), "characters")
	// Output:
	// 55 characters
}
