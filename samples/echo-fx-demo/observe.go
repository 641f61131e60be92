package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"go.uber.org/fx"

	outboxotel "github.com/outboxkit/outbox-go/adapters/otel"
	outboxprom "github.com/outboxkit/outbox-go/adapters/prometheus"
	outboxfx "github.com/outboxkit/outbox-go/fxmodule"
	"github.com/outboxkit/outbox-go/fxmodule/fxotel"
	"github.com/outboxkit/outbox-go/fxmodule/fxprom"
)

// observed is the outbox's module with metrics and traces, and what the rest of
// the service needs for its own.
func observed(provider trace.TracerProvider) fx.Option {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return fx.Options(
		fx.Supply(registry, fx.Annotate(provider, fx.As(new(trace.TracerProvider)))),
		outboxfx.NewModule(
			fxprom.Metrics(registry, outboxprom.WithEventLabels(20)),
			// The write is a span, and the delivery its child, so that a request,
			// what it wrote and what became of that are one trace to look at.
			fxotel.Tracing(outboxotel.WithTracerProvider(provider), outboxotel.WithProducerSpan(), outboxotel.WithChildOf()),
		),
	)
}

// flushTimeout is how long a stopping service waits for the sink of its spans.
const flushTimeout = 2 * time.Second

// newTracerProvider sends spans to where OTEL_TRACES_EXPORTER says; to otlp with
// what OTEL_EXPORTER_OTLP_ENDPOINT and its like say. Call flush when the app has
// stopped: the last deliveries have spans too. A sink that does not take them is
// no failure of the service.
func newTracerProvider(s Settings) (provider trace.TracerProvider, flush func(), err error) {
	var exporter sdktrace.TracerProviderOption
	switch s.Traces {
	case "", "none":
		return noop.NewTracerProvider(), func() {}, nil
	case "console":
		console, err := stdouttrace.New()
		if err != nil {
			return nil, nil, err
		}
		exporter = sdktrace.WithSyncer(console) // somebody looks on
	case "otlp":
		otlp, err := otlptracehttp.New(context.Background())
		if err != nil {
			return nil, nil, err
		}
		exporter = sdktrace.WithBatcher(otlp)
	default:
		return nil, nil, fmt.Errorf("OTEL_TRACES_EXPORTER is %q; known are none, console and otlp", s.Traces)
	}
	sdk := sdktrace.NewTracerProvider(exporter, sdktrace.WithResource(newResource()))
	return sdk, func() {
		ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
		defer cancel()
		if err := sdk.Shutdown(ctx); err != nil {
			slog.Warn("the last spans could not be sent", "error", err)
		}
	}, nil
}

// newResource says whose the spans are: OTEL_SERVICE_NAME and
// OTEL_RESOURCE_ATTRIBUTES come last and win over the default name.
func newResource() *resource.Resource {
	res, err := resource.New(context.Background(), resource.WithTelemetrySDK(),
		resource.WithAttributes(attribute.String("service.name", "echo-fx-demo")), resource.WithFromEnv())
	if err != nil { // what could be read is there
		slog.Warn("reading OTEL_RESOURCE_ATTRIBUTES", "error", err)
	}
	return res
}
