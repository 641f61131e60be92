package outboxprom

import (
	"context"
	"fmt"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/outboxkit/outbox-go/internal/tablestats"
	"github.com/outboxkit/outbox-go/outbox"
)

// How the table is read.
const (
	// ReadInterval is the least time between reads, however often it is scraped:
	// 15 seconds.
	ReadInterval = tablestats.ReadInterval
	// ReadTimeout ends a read that the database does not answer: 5 seconds.
	ReadTimeout = tablestats.ReadTimeout
	// ScrapeWait is how long a scrape waits for a read: 1 second.
	ScrapeWait = tablestats.Wait
	// MaxAge is the greatest age of the values that a scrape gets while the next
	// read is not done: 5 minutes.
	MaxAge = tablestats.MaxAge
)

// StatsSource is the source of [Metrics.WatchTable]; an [*outbox.Outbox] is one.
// It is an alias, so that WatchTable has one type in all packages that have it.
type StatsSource = interface {
	Stats(ctx context.Context) (outbox.Stats, error)
}

// WatchTable adds metrics of the table and of the poller: call it when the outbox
// is made. A scrape reads the table, at most once in [ReadInterval], for at most
// [ReadTimeout]. A scrape waits at most [ScrapeWait] and then gets the values of
// the previous read, unless they are older than [MaxAge]. When the table cannot be
// read, table_up is 0 and there are no values. It fails with [ErrRegistered] when
// called twice, and with [outbox.ErrClosed] after Close.
func (m *Metrics) WatchTable(source StatsSource) error {
	reader, err := tablestats.NewReader(source, func(stats outbox.Stats, err error) {
		if err == nil { // the engine reports them only when it stores outcomes
			m.QueueDepths(stats.HotDepth, stats.ColdDepth)
		}
	})
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return fmt.Errorf("outboxprom: watching the table: %w", outbox.ErrClosed)
	}
	t := newTable(reader, &m.opts)
	if err := m.register(t, "metrics of the table"); err != nil {
		return err
	}
	m.table = t
	return nil
}

// table collects what the table holds.
type table struct {
	reader *tablestats.Reader
	descs  [tablestats.Figures]*prometheus.Desc
	kinds  [tablestats.Figures]prometheus.ValueType
}

func newTable(reader *tablestats.Reader, o *options) *table {
	t := &table{reader: reader}
	for f, d := range tablestats.Describe() {
		name := strings.ReplaceAll(d.Name, ".", "_")
		t.kinds[f] = prometheus.GaugeValue
		switch d.Unit {
		case tablestats.Seconds:
			name += "_seconds"
		case tablestats.Errors:
			name += "_total"
			t.kinds[f] = prometheus.CounterValue
		}
		t.descs[f] = prometheus.NewDesc(prometheus.BuildFQName(o.prefix, "", name), d.Help, nil, o.labels)
	}
	return t
}

// Describe implements [prometheus.Collector].
func (t *table) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range t.descs {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (t *table) Collect(ch chan<- prometheus.Metric) {
	values, ok := t.reader.Values(context.Background())
	if !ok {
		return
	}
	values.Tell(func(f tablestats.Figure, value float64) {
		ch <- prometheus.MustNewConstMetric(t.descs[f], t.kinds[f], value)
	})
}

// close ends a running read.
func (t *table) close() error {
	if err := t.reader.Close(); err != nil {
		return fmt.Errorf("outboxprom: closing: %w", err)
	}
	return nil
}
