package outbox

import "time"

// Metrics receives the engine's metrics. Embed [NopMetrics] to implement only some methods and to
// stay compatible when methods are added. Many goroutines call the methods at once, also on the hot
// path: the methods must be fast and must not block. If the value is an [io.Closer], closing the
// outbox closes the value last.
type Metrics interface {
	// HotEnqueued: an event entered the hot queue after its commit.
	HotEnqueued(kind EventKind)
	// HotDropped: the hot queue was full; the poller delivers the event.
	HotDropped(kind EventKind)
	// HotSkippedDelayed: the event is delayed; the poller delivers it when it is due.
	HotSkippedDelayed(kind EventKind)
	// ColdEnqueued: the poller queued the event.
	ColdEnqueued(kind EventKind)

	// Delivered: DONE is stored, or the row is deleted. The latency is the time since OccurredAt.
	// If some of an event's listeners are not done, the event counts as delivered if at least one
	// listener is done; the other listeners have calls of their own, for the kind with their names.
	Delivered(kind EventKind, latency time.Duration)
	// Failed: RETRY is stored.
	Failed(kind EventKind)
	// Died: DEAD is stored.
	Died(kind EventKind)
	// Expired: the event was not delivered within [Rules].Expires. DEAD is stored, which Died counts
	// too, or the row is deleted, which no other method counts.
	Expired(kind EventKind)
	// Deferred: the deferral is stored; the event is delivered again later.
	Deferred(kind EventKind)
	// LeaseLost: outcomes were refused because other nodes now hold the events'
	// leases. No other method counts these outcomes.
	LeaseLost(count int)

	// ListenerRan: the interceptors and the listener took this long.
	ListenerRan(kind EventKind, d time.Duration)
	// QueueDepths: how many events wait in each queue. QueueDepths is called with each batch of
	// outcomes and with each cycle of the poller.
	QueueDepths(hot, cold int)
	// OldestLag: how long the oldest due event of the last poll has been due; zero when no event is
	// due.
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

// Expired does nothing.
func (NopMetrics) Expired(EventKind) {}

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
