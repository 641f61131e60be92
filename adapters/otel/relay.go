package outboxotel

import (
	"context"
	"io"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.30.0"

	"github.com/outboxkit/outbox-go/internal/bykind"
	"github.com/outboxkit/outbox-go/internal/tablestats"
	"github.com/outboxkit/outbox-go/relay"
)

// maxTopics is how many topics have separate series. Other topics count together as "_OTHER": a
// function may make topics of external data.
const maxTopics = 100

// RelayMetrics passes a relay's figures to OpenTelemetry. Make a RelayMetrics for each relay with
// [NewRelayMetrics]. It is safe for concurrent use.
type RelayMetrics struct {
	relay.NopMetrics // for methods that are added later

	acknowledged, unavailable, refused, unroutable, failed metric.Int64Counter
	duration                                               metric.Float64Histogram
	inFlight                                               metric.Int64UpDownCounter
	outage                                                 metric.Int64Gauge
	plain                                                  metric.MeasurementOption
	topics                                                 *bykind.Map[string, metric.MeasurementOption]
	other                                                  metric.MeasurementOption
}

var (
	_ relay.Metrics = (*RelayMetrics)(nil)
	_ io.Closer     = (*RelayMetrics)(nil)
)

// NewRelayMetrics makes the instruments. The options are [WithMeterProvider], [WithPrefix] and
// [WithAttributes]; [WithEventKinds] changes nothing. Several relays in the same process need
// different prefixes or attributes. NewRelayMetrics fails when the provider rejects an instrument,
// for example for an invalid prefix.
func NewRelayMetrics(opts ...MetricsOption) (*RelayMetrics, error) {
	cfg, err := newMetricsConfig(opts)
	if err != nil {
		return nil, err
	}
	in := &instruments{meter: cfg.provider.Meter(scopeName, metric.WithSchemaURL(semconv.SchemaURL)), prefix: cfg.prefix}
	m := &RelayMetrics{
		acknowledged: in.counter("relay.acknowledged", "Messages that the broker acknowledged."),
		unavailable:  in.counter("relay.unavailable", "Messages that were tried while the broker was away or had no room; their events are deferred."),
		refused:      in.counter("relay.refused", "Messages that the broker refuses for good; their events are DEAD."),
		unroutable:   in.counter("relay.unroutable", "Messages that no topic, stream or queue takes."),
		failed:       in.counter("relay.failed", "Messages that failed otherwise."),
		duration:     in.seconds("relay.publish.duration", "Time that a call of the publisher took which had messages to the topic.", durationBounds),
		plain:        measured(cfg.attributes),
	}
	m.inFlight, err = in.meter.Int64UpDownCounter(in.prefix+".relay.in.flight", metric.WithUnit(tablestats.Events), metric.WithDescription("Messages that are being published."))
	in.check("relay.in.flight", err)
	m.outage, err = in.meter.Int64Gauge(in.prefix+".relay.outage", metric.WithDescription("1 while the relay considers its broker away for at least one topic, else 0."))
	in.check("relay.outage", err)
	if err := in.err(); err != nil {
		return nil, err
	}
	of := func(name string) metric.MeasurementOption {
		return measured(cfg.attributes, semconv.MessagingDestinationName(text(name)))
	}
	m.topics, m.other = bykind.New(maxTopics, of), of(otherKind)
	m.Outage(false)
	return m, nil
}

func measured(common []attribute.KeyValue, more ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(slices.Concat(common, more)...))
}

func (m *RelayMetrics) of(topic string) metric.MeasurementOption {
	if attributes, ok := m.topics.Of(topic); ok {
		return attributes
	}
	return m.other
}

// Publishing keeps relay.in.flight.
func (m *RelayMetrics) Publishing(topic string, messages int) {
	m.inFlight.Add(context.Background(), int64(messages), m.of(topic))
}

// Published counts the messages by their class, and records relay.publish.duration.
func (m *RelayMetrics) Published(p relay.Published) {
	ctx, topic := context.Background(), m.of(p.Topic)
	m.inFlight.Add(ctx, -int64(p.Messages()), topic)
	m.acknowledged.Add(ctx, int64(p.Acknowledged), topic)
	m.unavailable.Add(ctx, int64(p.Unavailable), topic)
	m.refused.Add(ctx, int64(p.Refused), topic)
	m.unroutable.Add(ctx, int64(p.Unroutable), topic)
	m.failed.Add(ctx, int64(p.Failed), topic)
	m.duration.Record(ctx, max(p.Duration, 0).Seconds(), topic)
}

// Outage sets relay.outage.
func (m *RelayMetrics) Outage(away bool) {
	var value int64
	if away {
		value = 1
	}
	m.outage.Record(context.Background(), value, m.plain)
}

// Close sets relay.outage to 0, because a closed relay has no outage. The instruments stay with the
// provider.
func (m *RelayMetrics) Close() error {
	m.Outage(false)
	return nil
}
