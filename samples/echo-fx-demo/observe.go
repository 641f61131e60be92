package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	"go.opentelemetry.io/otel/propagation"
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

// observedOutbox is the outbox's module with metrics and traces. The module provides both to the
// rest of the service.
func observedOutbox(provider trace.TracerProvider) fx.Option {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return fx.Options(
		fx.Supply(registry, fx.Annotate(provider, fx.As(new(trace.TracerProvider)))),
		outboxfx.NewModule(
			outboxfx.WithConfig(outboxConfig),
			fxprom.Metrics(registry, outboxprom.WithEventLabels(20)),
			// The write is a span and the delivery a child of that span, so that a request, its
			// events and their deliveries are in the same trace.
			fxotel.Tracing(outboxotel.WithTracerProvider(provider), outboxotel.WithProducerSpan(), outboxotel.WithChildOf()),
		),
	)
}

// Orchestrators and Prometheus request these every few seconds.
const (
	healthPath  = "/healthz"
	metricsPath = "/metrics"
)

// traced begins a span for each request.
func traced(handler http.Handler, provider trace.TracerProvider) http.Handler {
	return otelhttp.NewHandler(handler, "", otelhttp.WithTracerProvider(provider),
		otelhttp.WithPropagators(propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})),
		otelhttp.WithFilter(func(r *http.Request) bool { return r.URL.Path != healthPath && r.URL.Path != metricsPath }),
		otelhttp.WithSpanNameFormatter(func(_ string, r *http.Request) string { return cmp.Or(r.Pattern, r.Method) }))
}

// nameRoute sets the request's pattern, as [http.ServeMux] does, for the name of the span. It has
// to be Echo's first middleware.
func nameRoute(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if c.Path() != "" {
			c.Request().Pattern = c.Request().Method + " " + c.Path()
		}
		return next(c)
	}
}

// flushTimeout is how long the service waits for the collector when it stops.
const flushTimeout = 2 * time.Second

// newTracerProvider exports spans as OTEL_TRACES_EXPORTER and, for otlp,
// OTEL_EXPORTER_OTLP_ENDPOINT say. Call flush after the app has stopped, because
// the last deliveries have spans too. An unreachable collector does not fail the
// service.
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
		exporter = sdktrace.WithSyncer(console) // line by line
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

// newResource describes the service: OTEL_SERVICE_NAME and
// OTEL_RESOURCE_ATTRIBUTES override the default name.
func newResource() *resource.Resource {
	res, err := resource.New(context.Background(), resource.WithTelemetrySDK(),
		resource.WithAttributes(attribute.String("service.name", "echo-fx-demo")), resource.WithFromEnv())
	if err != nil { // the rest has been read
		slog.Warn("reading OTEL_RESOURCE_ATTRIBUTES", "error", err)
	}
	return res
}
