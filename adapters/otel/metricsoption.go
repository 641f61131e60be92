package outboxotel

import (
	"fmt"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/outboxkit/outbox-go/outbox"
)

// DefaultPrefix is what the names of metrics begin with.
const DefaultPrefix = "outbox"

// MetricsOption changes what [NewMetrics] makes. A nil option is skipped.
type MetricsOption func(*metricsConfig)

type metricsConfig struct {
	provider   metric.MeterProvider
	prefix     string
	attributes []attribute.KeyValue
	byKind     bool
	kinds      int
}

// WithMeterProvider is where figures go. Defaults to the global provider, which
// may be set later.
func WithMeterProvider(p metric.MeterProvider) MetricsOption {
	return func(c *metricsConfig) { c.provider = p }
}

// WithPrefix is what the names begin with in place of [DefaultPrefix], such as
// "orders.outbox". Several outboxes in one process need different prefixes or
// different attributes, or their gauges overwrite each other.
func WithPrefix(prefix string) MetricsOption {
	return func(c *metricsConfig) { c.prefix = prefix }
}

// WithAttributes are put on every figure, such as the name of the outbox.
func WithAttributes(attributes ...attribute.KeyValue) MetricsOption {
	return func(c *metricsConfig) { c.attributes = append(c.attributes, attributes...) }
}

// WithEventKinds tells events apart by outbox.aggregate.type and
// outbox.event.type. The first limit pairs of types that are seen have figures
// of their own, all others together have those of the types "_OTHER", so that
// event types that are made at run time cannot make time series without end.
// Rows that cannot be decoded have the types "unknown".
func WithEventKinds(limit int) MetricsOption {
	return func(c *metricsConfig) { c.byKind, c.kinds = true, limit }
}

func newMetricsConfig(opts []MetricsOption) (metricsConfig, error) {
	c := metricsConfig{}
	for _, opt := range opts {
		if opt != nil {
			opt(&c)
		}
	}
	if c.byKind && c.kinds < 1 {
		return c, &outbox.FieldError{Field: "outboxotel.WithEventKinds limit", Problem: fmt.Sprintf("is %d; it must be positive", c.kinds)}
	}
	if c.provider == nil {
		c.provider = otel.GetMeterProvider()
	}
	if c.prefix == "" {
		c.prefix = DefaultPrefix
	}
	return c, nil
}
