package outboxfx

import (
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	outboxotel "github.com/outboxkit/outbox-go/adapters/otel"
	"github.com/outboxkit/outbox-go/outbox"
)

// otelMetrics makes the metrics of the outbox. They leave nothing with the
// provider that would be read until the outbox starts.
func (m *module) otelMetrics(c resolved, opts []outboxotel.MetricsOption) (outbox.Metrics, error) {
	if !c.metricsEnabled() {
		return outbox.NopMetrics{}, nil
	}
	var own []outboxotel.MetricsOption
	if c.Metrics.NamePrefix != "" {
		prefixed, err := givesPrefix(opts)
		if err != nil {
			return nil, err
		}
		if prefixed {
			return nil, m.conflict("metrics.name-prefix", "is set, but outboxotel.WithPrefix replaces it")
		}
		own = append(own, outboxotel.WithPrefix(c.Metrics.NamePrefix))
	}
	if m.name != "" {
		own = append(own, outboxotel.WithAttributes(attribute.String(outboxLabel, m.name)))
	}
	metrics, err := outboxotel.NewMetrics(append(own, opts...)...)
	if err != nil {
		return nil, err
	}
	return metrics, nil
}

// givesPrefix finds out whether options give a prefix, by the names that they
// make.
func givesPrefix(opts []outboxotel.MetricsOption) (bool, error) {
	reader := &nameReader{}
	all := append([]outboxotel.MetricsOption{outboxotel.WithPrefix(noPrefix)}, opts...)
	metrics, err := outboxotel.NewMetrics(append(all, outboxotel.WithMeterProvider(reader))...)
	if err != nil {
		return false, err
	}
	return !strings.HasPrefix(reader.name, noPrefix+"."), metrics.Close()
}

// nameReader is a provider of meters that do nothing but note the name of a
// counter.
type nameReader struct {
	noop.MeterProvider
	name string
}

func (r *nameReader) Meter(string, ...metric.MeterOption) metric.Meter {
	return namedMeter{of: r}
}

type namedMeter struct {
	noop.Meter
	of *nameReader
}

func (m namedMeter) Int64Counter(name string, _ ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	m.of.name = name
	return noop.Int64Counter{}, nil
}
