package outboxprom

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/outboxkit/outbox-go/outbox"
)

// How the table is read.
const (
	// ReadInterval is how often at most, however often it is scraped.
	ReadInterval = 15 * time.Second
	// ReadTimeout ends a read that the database does not answer.
	ReadTimeout = 5 * time.Second
	// ScrapeWait is how long a scrape waits for a read.
	ScrapeWait = time.Second
	// MaxAge is how old values may be that a scrape gets because the next read
	// is not through yet.
	MaxAge = time.Minute
)

// StatsSource is what [Metrics.WatchTable] reads; an [*outbox.Outbox] is one.
type StatsSource interface {
	Stats(ctx context.Context) (outbox.Stats, error)
}

// WatchTable adds metrics of the table and of the poller: call it when the
// outbox is made. The table is read when it is scraped, at most once in
// [ReadInterval], for at most [ReadTimeout]. A scrape waits at most
// [ScrapeWait] and then gets the values of the read before, unless they are
// older than [MaxAge]. When the table cannot be read, table_up is 0 and there
// are no values. It fails with [ErrRegistered] when called twice, and with
// [outbox.ErrClosed] after Close.
func (m *Metrics) WatchTable(source StatsSource) error {
	if isNil(source) {
		return &outbox.FieldError{Field: "WatchTable.source", Problem: "is nil; give the outbox"}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return fmt.Errorf("outboxprom: watching the table: %w", outbox.ErrClosed)
	}
	t := newTable(source, &m.opts)
	t.depths = m.QueueDepths
	if err := m.register(t, "metrics of the table"); err != nil {
		return err
	}
	m.table = t
	return nil
}

// table is a collector of what the table holds. It has no goroutine but while it
// reads.
type table struct {
	source StatsSource
	depths func(hot, cold int)

	pending, due, delayed, dead, oldest *prometheus.Desc
	lastPoll, pollInterval              *prometheus.Desc
	up, readAt, errors                  *prometheus.Desc

	ctx    context.Context // of the reads; it ends when the table is closed
	cancel context.CancelFunc

	mu      sync.Mutex
	closed  bool
	began   time.Time     // the last read
	reading chan struct{} // closed when the read under way ends; nil when none is
	stats   *outbox.Stats // of the last read; nil when it failed
	at      time.Time     // when stats were read
	failed  int           // reads so far
}

func newTable(source StatsSource, o *options) *table {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(prometheus.BuildFQName(o.prefix, "", name), help, nil, o.labels)
	}
	t := &table{
		source: source,

		pending: desc("events_pending", "Events in the table that are to be delivered, due or delayed; each count stops at 100,000."),
		due:     desc("events_due", "Events in the table that are due now."),
		delayed: desc("events_delayed", "Events in the table that are due later, delayed or to be tried again."),
		dead:    desc("events_dead", "Events in the table that were given up."),
		oldest:  desc("oldest_due_age_seconds", "How long the oldest due event has been due; 0 when none is."),

		lastPoll:     desc("last_poll_timestamp_seconds", "When the poller last read the table or found its queue full; 0 before the first time."),
		pollInterval: desc("poll_interval_seconds", "How often the poller reads an idle table."),

		up:     desc("table_up", "Whether the last read of the table for these metrics succeeded."),
		readAt: desc("table_read_timestamp_seconds", "When the table was read for these metrics."),
		errors: desc("table_read_errors_total", "Reads of the table for these metrics that failed."),
	}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	return t
}

// Describe implements [prometheus.Collector].
func (t *table) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		t.pending, t.due, t.delayed, t.dead, t.oldest, t.lastPoll, t.pollInterval, t.up, t.readAt, t.errors,
	} {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (t *table) Collect(ch chan<- prometheus.Metric) {
	reading, ok := t.begin(time.Now())
	if !ok {
		return
	}
	if reading != nil {
		enough := time.NewTimer(ScrapeWait)
		defer enough.Stop()
		select {
		case <-reading:
		case <-enough.C:
		}
	}
	t.mu.Lock()
	stats, at, failed := t.stats, t.at, t.failed
	t.mu.Unlock()
	gauge := func(desc *prometheus.Desc, value float64) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value)
	}
	ch <- prometheus.MustNewConstMetric(t.errors, prometheus.CounterValue, float64(failed))
	if stats == nil || time.Since(at) > MaxAge {
		gauge(t.up, 0)
		return
	}
	gauge(t.up, 1)
	gauge(t.readAt, seconds(at))
	gauge(t.pending, float64(stats.Pending))
	gauge(t.due, float64(stats.Due))
	gauge(t.delayed, float64(stats.Delayed))
	gauge(t.dead, float64(stats.Dead))
	gauge(t.oldest, stats.OldestDueAge.Seconds())
	if stats.PollInterval > 0 { // the mode has a poller
		gauge(t.lastPoll, seconds(stats.LastPoll))
		gauge(t.pollInterval, stats.PollInterval.Seconds())
	}
}

// begin starts a read if it is time, and returns what the read under way will
// close; nil when there is none. False: the table is closed.
func (t *table) begin(now time.Time) (reading <-chan struct{}, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, false
	}
	if t.reading == nil && (t.began.IsZero() || now.Sub(t.began) >= ReadInterval) {
		t.began, t.reading = now, make(chan struct{})
		go t.read(t.reading)
	}
	return t.reading, true
}

// read reads the table once. A read that does not even end when its context does
// keeps others from beginning: one connection is lost to it, not one a scrape.
func (t *table) read(done chan struct{}) {
	defer close(done)
	ctx, cancel := context.WithTimeout(t.ctx, ReadTimeout)
	defer cancel()
	stats, err := t.ask(ctx)
	at := time.Now()
	if err == nil {
		t.depths(stats.HotDepth, stats.ColdDepth) // the engine tells them only when it stores outcomes
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reading = nil
	if err != nil {
		t.stats = nil
		t.failed++
		return
	}
	t.stats, t.at = &stats, at
}

// ask keeps a source's panic from ending the process.
func (t *table) ask(ctx context.Context) (stats outbox.Stats, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("outboxprom: reading the table: panic: %v", r)
		}
	}()
	return t.source.Stats(ctx)
}

// close ends a read under way and waits for it a moment, so that the database
// can be closed next.
func (t *table) close() error {
	t.mu.Lock()
	t.closed = true
	reading := t.reading
	t.mu.Unlock()
	t.cancel()
	if reading == nil {
		return nil
	}
	enough := time.NewTimer(ScrapeWait)
	defer enough.Stop()
	select {
	case <-reading:
		return nil
	case <-enough.C:
		return errors.New("outboxprom: closing: a read of the table goes on although its context ended")
	}
}

// seconds is a time as Prometheus has it; 0 for the zero time.
func seconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}
