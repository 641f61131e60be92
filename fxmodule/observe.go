package outboxfx

import (
	"fmt"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	outboxotel "github.com/outboxkit/outbox-go/adapters/otel"
	outboxprom "github.com/outboxkit/outbox-go/adapters/prometheus"
	"github.com/outboxkit/outbox-go/outbox"
)

// WithPrometheus has Prometheus scrape the outbox's figures and those of its
// table: [outboxprom.New] with the [MetricsPrefix] and the options, and
// [outboxprom.Metrics.WatchTable]. A nil registerer is
// [prometheus.DefaultRegisterer]. They are unregistered when the app stops.
func WithPrometheus(registerer prometheus.Registerer, opts ...outboxprom.Option) Option {
	if registerer == nil {
		registerer = prometheus.DefaultRegisterer
	}
	return func(m *module) {
		m.measure("WithPrometheus", func(prefix MetricsPrefix) (outbox.Metrics, error) {
			metrics, err := outboxprom.New(registerer, append([]outboxprom.Option{outboxprom.WithPrefix(string(prefix))}, opts...)...)
			if err != nil {
				return nil, err
			}
			return metrics, nil
		})
	}
}

// WithOTel traces writes and deliveries with OpenTelemetry: [outboxotel.Hook],
// which sees an event after all other hooks, and [outboxotel.Interceptor], around
// all others. The interceptor knows the outbox's mode.
func WithOTel(opts ...outboxotel.Option) Option {
	return func(m *module) { m.tracing = append([]outboxotel.Option{}, opts...) }
}

// WithOTelMetrics passes the outbox's figures on to OpenTelemetry:
// [outboxotel.NewMetrics] with the [MetricsPrefix] and the options.
func WithOTelMetrics(opts ...outboxotel.MetricsOption) Option {
	return func(m *module) {
		m.measure("WithOTelMetrics", func(prefix MetricsPrefix) (outbox.Metrics, error) {
			metrics, err := outboxotel.NewMetrics(append([]outboxotel.MetricsOption{outboxotel.WithPrefix(string(prefix))}, opts...)...)
			if err != nil {
				return nil, err
			}
			return metrics, nil
		})
	}
}

// measure is for the options that say where figures go, of which an outbox has
// one.
func (m *module) measure(option string, metrics any) {
	if m.metrics != nil && m.metrics.option != option {
		m.errs = append(m.errs, fmt.Errorf("outboxfx: %s and %s of %s both say where metrics go; leave one out", m.metrics.option, option, describe(m.name)))
	}
	m.metrics = &part{option, metrics}
}

// trace adds the hook and the interceptor of WithOTel.
func (m *module) trace(cfg *outbox.Config) {
	if m.tracing == nil {
		return
	}
	opts := append([]outboxotel.Option{outboxotel.WithMode(cfg.Mode)}, m.tracing...)
	cfg.Interceptors = slices.Insert(cfg.Interceptors, 0, outboxotel.Interceptor(opts...))
	cfg.Hooks = append(cfg.Hooks, outboxotel.Hook(opts...))
}

// tableWatcher is metrics that also read the table; those of outboxprom do.
type tableWatcher interface {
	WatchTable(source outboxprom.StatsSource) error
}

// watchTable lets metrics that do read the table.
func watchTable(cfg outbox.Config, o *outbox.Outbox) error {
	if w, ok := cfg.Metrics.(tableWatcher); ok {
		return w.WatchTable(o)
	}
	return nil
}
