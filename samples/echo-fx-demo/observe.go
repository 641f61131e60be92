package main

import (
	"context"
	"fmt"
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
)

// observed is the outbox's module with metrics and traces, and what the rest of
// the service needs for its own.
func observed(provider trace.TracerProvider) fx.Option {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return fx.Options(
		fx.Supply(registry, fx.Annotate(provider, fx.As(new(trace.TracerProvider)))),
		outboxfx.NewModule(
			outboxfx.WithPrometheus(registry, outboxprom.WithEventLabels(20)),
			// A child, so that a request and its deliveries are one trace to look
			// at.
			outboxfx.WithOTel(outboxotel.WithTracerProvider(provider), outboxotel.WithChildOf()),
		),
	)
}

// newTracerProvider sends spans to where OTEL_TRACES_EXPORTER says; to otlp with
// what OTEL_EXPORTER_OTLP_ENDPOINT and its like say. Call flush when the app has
// stopped: the last deliveries have spans too.
func newTracerProvider(s Settings) (provider trace.TracerProvider, flush func() error, err error) {
	var exporter sdktrace.SpanExporter
	switch s.Traces {
	case "", "none":
		return noop.NewTracerProvider(), func() error { return nil }, nil
	case "console":
		exporter, err = stdouttrace.New()
	case "otlp":
		exporter, err = otlptracehttp.New(context.Background())
	default:
		err = fmt.Errorf("OTEL_TRACES_EXPORTER is %q; known are none, console and otlp", s.Traces)
	}
	if err != nil {
		return nil, nil, err
	}
	sdk := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter),
		sdktrace.WithResource(resource.NewSchemaless(attribute.String("service.name", "echo-fx-demo"))))
	return sdk, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		return sdk.Shutdown(ctx)
	}, nil
}
