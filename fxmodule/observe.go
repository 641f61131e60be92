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
// table: [outboxprom.New] with the options and [outboxprom.Metrics.WatchTable]. A
// nil registerer is [prometheus.DefaultRegisterer]. The figures are on the
// registry from when the outbox starts until it stops, and a name that is taken
// is an error when the app is made, or when it starts if an outbox of the same app
// takes it. Those of a named outbox have the label outbox, its name.
func WithPrometheus(registerer prometheus.Registerer, opts ...outboxprom.Option) Option {
	if registerer == nil {
		registerer = prometheus.DefaultRegisterer
	}
	return func(m *module) {
		if isNil(registerer) {
			m.errs = append(m.errs, fmt.Errorf("outboxfx: WithPrometheus of %s is given a nil %T", describe(m.name), registerer))
		}
		m.measure("WithPrometheus", func(c resolved, known []moduleName) (outbox.Metrics, error) {
			return m.prometheusMetrics(c, registerer, known, opts)
		})
	}
}

// WithOTel traces writes and deliveries with OpenTelemetry: [outboxotel.Hook],
// which sees an event after all other hooks, and [outboxotel.Interceptor], around
// all others. With tracing.enabled false they are left out.
func WithOTel(opts ...outboxotel.Option) Option {
	return func(m *module) { m.tracing = append([]outboxotel.Option{}, opts...) }
}

// WithOTelMetrics passes the outbox's figures and those of its table on to
// OpenTelemetry: [outboxotel.NewMetrics] with the options and
// [outboxotel.Metrics.WatchTable]. Those of a named outbox have the attribute
// outbox, its name.
func WithOTelMetrics(opts ...outboxotel.MetricsOption) Option {
	return func(m *module) {
		m.measure("WithOTelMetrics", func(c resolved) (outbox.Metrics, error) { return m.otelMetrics(c, opts) })
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

// trace adds the hook and the interceptor of WithOTel, or of tracing.enabled.
func (m *module) trace(cfg *outbox.Config, c resolved) {
	if enabled := c.Tracing.Enabled; enabled == nil && m.tracing == nil || enabled != nil && !*enabled {
		return
	}
	cfg.Interceptors = slices.Insert(cfg.Interceptors, 0, outboxotel.Interceptor(m.tracing...))
	cfg.Hooks = append(cfg.Hooks, outboxotel.Hook(m.tracing...))
}

// tableWatcher is metrics that also read the table; those of outboxprom and of
// outboxotel do, whose StatsSource is the same type.
type tableWatcher interface {
	WatchTable(source outboxprom.StatsSource) error
}

// watchTable lets metrics that do read the table.
func watchTable(metrics outbox.Metrics, o *outbox.Outbox) error {
	if w, ok := metrics.(tableWatcher); ok {
		return w.WatchTable(o)
	}
	return nil
}
