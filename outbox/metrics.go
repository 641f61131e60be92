package outbox

import "time"

// EventKind is what metrics may tell events apart by.
type EventKind struct {
	AggregateType AggregateType
	EventType     EventType
}

// Metrics gets the figures of the engine. Embed [NopMetrics] to implement only
// some and to stay compatible when methods are added. It is called from many
// goroutines at once and on the hot path: it must be fast and must not block.
// If it is an [io.Closer], closing the outbox closes it last.
type Metrics interface {
	// HotEnqueued: an event went into the hot queue after its commit.
	HotEnqueued(kind EventKind)
	// HotDropped: the hot queue was full; the poller delivers the event.
	HotDropped(kind EventKind)
	// HotSkippedDelayed: the event is delayed; the poller delivers it in time.
	HotSkippedDelayed(kind EventKind)
	// ColdEnqueued: the poller brought the event.
	ColdEnqueued(kind EventKind)

	// Delivered: DONE is stored, or the row is deleted. The latency is from
	// OccurredAt until then.
	Delivered(kind EventKind, latency time.Duration)
	// Failed: RETRY is stored.
	Failed(kind EventKind)
	// Died: DEAD is stored.
	Died(kind EventKind)
	// Deferred: that the event is to come again later is stored.
	Deferred(kind EventKind)
	// LeaseLost: outcomes were refused because other nodes hold the events now.
	// They count as nothing else.
	LeaseLost(count int)

	// ListenerRan: interceptors and listener took this long.
	ListenerRan(kind EventKind, d time.Duration)
	// QueueDepths: how many events wait in each queue. It is reported with each batch
	// of outcomes and with each cycle of the poller.
	QueueDepths(hot, cold int)
	// OldestLag: how long the oldest due event of the last poll has been due;
	// zero when none is.
	OldestLag(d time.Duration)
	// BatchRead: the poller read this many events at once.
	BatchRead(size int)
}

// NopMetrics does nothing. Embed it.
type NopMetrics struct{}

// HotEnqueued does nothing.
func (NopMetrics) HotEnqueued(EventKind) {}

// HotDropped does nothing.
func (NopMetrics) HotDropped(EventKind) {}

// HotSkippedDelayed does nothing.
func (NopMetrics) HotSkippedDelayed(EventKind) {}

// ColdEnqueued does nothing.
func (NopMetrics) ColdEnqueued(EventKind) {}

// Delivered does nothing.
func (NopMetrics) Delivered(EventKind, time.Duration) {}

// Failed does nothing.
func (NopMetrics) Failed(EventKind) {}

// Died does nothing.
func (NopMetrics) Died(EventKind) {}

// Deferred does nothing.
func (NopMetrics) Deferred(EventKind) {}

// LeaseLost does nothing.
func (NopMetrics) LeaseLost(int) {}

// ListenerRan does nothing.
func (NopMetrics) ListenerRan(EventKind, time.Duration) {}

// QueueDepths does nothing.
func (NopMetrics) QueueDepths(int, int) {}

// OldestLag does nothing.
func (NopMetrics) OldestLag(time.Duration) {}

// BatchRead does nothing.
func (NopMetrics) BatchRead(int) {}

func metricsOr(m Metrics) Metrics {
	if m == nil {
		return NopMetrics{}
	}
	return m
}
