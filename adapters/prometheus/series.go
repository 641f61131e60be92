package outboxprom

import (
	"github.com/prometheus/client_golang/prometheus"
)

// The buckets of the histograms. An event takes milliseconds on the hot path, seconds on the cold
// path, and minutes or hours with retries or a delay.
var (
	latencyBuckets  = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 3600}
	listenerBuckets = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}
	batchBuckets    = []float64{0, 1, 5, 10, 25, 50, 100, 250, 500, 1000} // 0: an idle table
)

// vectors are the metrics of single events, with or without event labels.
type vectors struct {
	hot, dropped, skipped, cold               *prometheus.CounterVec
	success, failure, dead, expired, deferred *prometheus.CounterVec
	latency, listener                         *prometheus.HistogramVec
}

func newVectors(o *options) *vectors {
	var types, labels []string
	if o.events {
		types = []string{LabelEventType, LabelAggregateType}
		labels = append(types, LabelListener)
	}
	counter := func(name, help string, labels []string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: o.prefix, Name: name, Help: help, ConstLabels: o.labels,
		}, labels)
	}
	histogram := func(name, help string, buckets []float64) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: o.prefix, Name: name, Help: help, ConstLabels: o.labels, Buckets: buckets,
		}, labels)
	}
	return &vectors{
		hot:      counter("enqueue_hot_total", "Events that entered the hot queue after their commit.", types),
		dropped:  counter("enqueue_hot_dropped_total", "Events that found the hot queue full; the poller delivers them.", types),
		skipped:  counter("enqueue_hot_skipped_delayed_total", "Delayed events; the poller delivers them when they are due.", types),
		cold:     counter("enqueue_cold_total", "Events that the poller queued.", types),
		success:  counter("dispatch_success_total", "Events that were delivered and are stored as DONE.", labels),
		failure:  counter("dispatch_failure_total", "Deliveries that failed and will be retried.", labels),
		dead:     counter("dispatch_dead_total", "Events that are stored as DEAD.", labels),
		expired:  counter("dispatch_expired_total", "Events that expired before they were delivered.", labels),
		deferred: counter("dispatch_deferred_total", "Deliveries that the listener deferred.", labels),
		latency:  histogram("dispatch_latency_seconds", "Time from an event's occurrence until DONE is stored, delays and retries included.", latencyBuckets),
		listener: histogram("listener_duration_seconds", "Time that the interceptors and the listener took.", listenerBuckets),
	}
}

func (v *vectors) collectors() []prometheus.Collector {
	return []prometheus.Collector{
		v.hot, v.dropped, v.skipped, v.cold, v.success, v.failure, v.dead, v.expired, v.deferred, v.latency, v.listener,
	}
}

// series are the metrics of a kind of event. They are looked up once, because a look-up costs more
// than counting.
type series struct {
	hot, dropped, skipped, cold               prometheus.Counter
	success, failure, dead, expired, deferred prometheus.Counter
	latency, listener                         prometheus.Observer
}

func (v *vectors) series(labels ...string) *series {
	types := labels[:min(2, len(labels))]
	return &series{
		hot: v.hot.WithLabelValues(types...), dropped: v.dropped.WithLabelValues(types...),
		skipped: v.skipped.WithLabelValues(types...), cold: v.cold.WithLabelValues(types...),
		success: v.success.WithLabelValues(labels...), failure: v.failure.WithLabelValues(labels...),
		dead: v.dead.WithLabelValues(labels...), expired: v.expired.WithLabelValues(labels...), deferred: v.deferred.WithLabelValues(labels...),
		latency: v.latency.WithLabelValues(labels...), listener: v.listener.WithLabelValues(labels...),
	}
}
