// Package fxotel exports the metrics and traces of an outbox in an fx app to
// OpenTelemetry.
//
//	outboxfx.NewModule(fxotel.Metrics(), fxotel.Tracing())
//
// The metrics and spans are the metrics and spans of [outboxotel]. They go to the global providers
// unless an option names other providers. Only an app that imports this package links
// OpenTelemetry.
package fxotel

import (
	"go.opentelemetry.io/otel/attribute"

	outboxotel "github.com/outboxkit/outbox-go/adapters/otel"
	outboxfx "github.com/outboxkit/outbox-go/fxmodule"
)

// Metrics exports the figures that [outboxotel.NewMetrics] counts and the figures that
// [outboxotel.Metrics.WatchTable] reads, to the global meter provider unless an option names
// another provider. The metrics of a named outbox have the attribute outbox with the name as the
// value.
func Metrics(opts ...outboxotel.MetricsOption) outboxfx.Option {
	return outboxfx.WithMetrics(func(name outboxfx.Name, c outboxfx.Config) (*outboxotel.Metrics, error) {
		var own []outboxotel.MetricsOption
		if c.Metrics.NamePrefix != "" {
			own = append(own, outboxotel.WithPrefix(c.Metrics.NamePrefix))
		}
		if name != "" {
			own = append(own, outboxotel.WithAttributes(attribute.String("outbox", string(name))))
		}
		return outboxotel.NewMetrics(append(own, opts...)...)
	})
}

// Tracing traces writes and deliveries: [outboxotel.Hook] sees an event after all other hooks, and
// [outboxotel.Interceptor] runs around all other interceptors. Spans go to the global tracer
// provider unless an option names another provider.
func Tracing(opts ...outboxotel.Option) outboxfx.Option {
	return outboxfx.WithTracing(outboxotel.Hook(opts...), outboxotel.Interceptor(opts...))
}
