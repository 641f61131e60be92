package outboxprom

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/outboxkit/outbox-go/internal/bykind"
	"github.com/outboxkit/outbox-go/internal/nilness"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/relay"
)

// LabelTopic is the label of [RelayMetrics].
const LabelTopic = "topic"

// maxTopics is how many topics have separate series. Other topics count together as [OtherKinds]: a
// function may make topics of external data.
const maxTopics = 100

// RelayMetrics is a [relay.Metrics] that Prometheus scrapes. Make a RelayMetrics for each relay
// with [NewRelayMetrics]. It is safe for concurrent use.
type RelayMetrics struct {
	relay.NopMetrics // for methods to come

	unregister func()
	outage     prometheus.Gauge
	topics     *bykind.Map[string, *topic]
	other      func() *topic
}

var (
	_ relay.Metrics = (*RelayMetrics)(nil)
	_ io.Closer     = (*RelayMetrics)(nil)
)

// topic has the series of a topic.
type topic struct {
	acknowledged, unavailable, refused, unroutable, failed prometheus.Counter
	duration                                               prometheus.Observer
	inFlight                                               prometheus.Gauge
}

// NewRelayMetrics makes the metrics of a relay and registers them, all or nothing. The options are
// [WithPrefix] and [WithConstLabels]; [WithEventLabels] changes nothing. NewRelayMetrics fails with
// [ErrRegistered] if the registry has the same metrics, such as the metrics of another relay.
// Invalid options are an [outbox.FieldError].
func NewRelayMetrics(registerer prometheus.Registerer, opts ...Option) (*RelayMetrics, error) {
	if nilness.IsNil(registerer) {
		return nil, &outbox.FieldError{Field: "NewRelayMetrics.registerer", Problem: "is nil; prometheus.DefaultRegisterer is the usual one"}
	}
	o, err := newOptions(opts)
	if _, has := o.labels[LabelTopic]; has {
		err = errors.Join(err, &outbox.FieldError{Field: fmt.Sprintf("WithConstLabels[%q]", LabelTopic), Problem: "is a label of NewRelayMetrics"})
	}
	if err != nil {
		return nil, err
	}
	v := newRelayVectors(&o)
	m := &RelayMetrics{outage: prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: o.prefix, Name: "relay_outage", ConstLabels: o.labels,
		Help: "1 while the relay considers its broker away for at least one topic, else 0.",
	})}
	m.topics = bykind.New(maxTopics, func(name string) *topic { return v.topic(valid(name)) })
	m.other = sync.OnceValue(func() *topic { return v.topic(OtherKinds) })
	own := prometheus.NewRegistry() // registered as a single collector: all metrics or nothing
	own.MustRegister(v.acknowledged, v.unavailable, v.refused, v.unroutable, v.failed, v.duration, v.inFlight, m.outage)
	if err := register(registerer, o.prefix, own, "metrics of a relay", "relay"); err != nil {
		return nil, err
	}
	m.unregister = sync.OnceFunc(func() { registerer.Unregister(own) })
	return m, nil
}

// relayVectors are the metrics of all topics.
type relayVectors struct {
	acknowledged, unavailable, refused, unroutable, failed *prometheus.CounterVec
	duration                                               *prometheus.HistogramVec
	inFlight                                               *prometheus.GaugeVec
}

func newRelayVectors(o *options) *relayVectors {
	labels := []string{LabelTopic}
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: o.prefix, Name: name, Help: help, ConstLabels: o.labels}, labels)
	}
	return &relayVectors{
		acknowledged: counter("relay_acknowledged_total", "Messages that the broker acknowledged."),
		unavailable:  counter("relay_unavailable_total", "Messages that were tried while the broker was away or had no room; their events are deferred."),
		refused:      counter("relay_refused_total", "Messages that the broker refuses for good; their events are DEAD."),
		unroutable:   counter("relay_unroutable_total", "Messages that no topic, stream or queue takes."),
		failed:       counter("relay_failed_total", "Messages that failed otherwise."),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: o.prefix, Name: "relay_publish_duration_seconds", ConstLabels: o.labels, Buckets: listenerBuckets,
			Help: "Time that a call of the publisher took which had messages to the topic.",
		}, labels),
		inFlight: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: o.prefix, Name: "relay_in_flight", ConstLabels: o.labels, Help: "Messages that are being published.",
		}, labels),
	}
}

func (v *relayVectors) topic(name string) *topic {
	return &topic{
		acknowledged: v.acknowledged.WithLabelValues(name), unavailable: v.unavailable.WithLabelValues(name),
		refused: v.refused.WithLabelValues(name), unroutable: v.unroutable.WithLabelValues(name), failed: v.failed.WithLabelValues(name),
		duration: v.duration.WithLabelValues(name), inFlight: v.inFlight.WithLabelValues(name),
	}
}

func (m *RelayMetrics) of(name string) *topic {
	if t, ok := m.topics.Of(name); ok {
		return t
	}
	return m.other()
}

// Publishing implements [relay.Metrics].
func (m *RelayMetrics) Publishing(topic string, messages int) {
	m.of(topic).inFlight.Add(float64(messages))
}

// Published implements [relay.Metrics].
func (m *RelayMetrics) Published(p relay.Published) {
	t := m.of(p.Topic)
	t.inFlight.Sub(float64(p.Messages()))
	t.acknowledged.Add(float64(p.Acknowledged))
	t.unavailable.Add(float64(p.Unavailable))
	t.refused.Add(float64(p.Refused))
	t.unroutable.Add(float64(p.Unroutable))
	t.failed.Add(float64(p.Failed))
	t.duration.Observe(max(p.Duration, 0).Seconds())
}

// Outage implements [relay.Metrics].
func (m *RelayMetrics) Outage(away bool) {
	m.outage.Set(0)
	if away {
		m.outage.Set(1)
	}
}

// Close unregisters the metrics. The relay closes them. Closing again does nothing.
func (m *RelayMetrics) Close() error {
	m.unregister()
	return nil
}
