package outboxotel

import (
	"fmt"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/outboxkit/outbox-go/outbox"
)

// DefaultPrefix is the prefix of the metrics' names.
const DefaultPrefix = "outbox"

// MetricsOption changes the metrics that [NewMetrics] makes. A nil option is skipped.
type MetricsOption func(*metricsConfig)

type metricsConfig struct {
	provider   metric.MeterProvider
	prefix     string
	attributes []attribute.KeyValue
	byKind     bool
	kinds      int
}

// WithMeterProvider sets the provider of the metrics. Defaults to the global
// provider, which may be set later.
func WithMeterProvider(p metric.MeterProvider) MetricsOption {
	return func(c *metricsConfig) { c.provider = p }
}

// WithPrefix sets the prefix of the names, such as "orders.outbox". Defaults to
// [DefaultPrefix]. Several outboxes in one process need different prefixes or
// different attributes, or their gauges overwrite each other.
func WithPrefix(prefix string) MetricsOption {
	return func(c *metricsConfig) { c.prefix = prefix }
}

// WithAttributes puts attributes on every metric, such as the name of the outbox.
func WithAttributes(attributes ...attribute.KeyValue) MetricsOption {
	return func(c *metricsConfig) { c.attributes = append(c.attributes, attributes...) }
}

// WithEventKinds adds the attributes outbox.aggregate.type and outbox.event.type.
// The first limit pairs of types have their own series; all others count as
// "_OTHER", so that event types made at run time cannot create unlimited time
// series. Rows that cannot be decoded have the types "unknown".
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
