package outboxprom

import (
	"context"
	"fmt"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/outboxkit/outbox-go/internal/tablestats"
	"github.com/outboxkit/outbox-go/outbox"
)

// WatchTable adds metrics of the table and of the poller. Call WatchTable when the outbox is made,
// with the [*outbox.Outbox] whose Config.Metrics is m. A scrape reads the table, at most every 15
// seconds and for at most 5 seconds. A scrape waits for the read for at most one second. Then the
// scrape gets the values of the previous read, unless they are older than 5 minutes. When the table
// cannot be read, table_up is 0 and there are no values. WatchTable fails with [ErrRegistered] when
// called twice, with [outbox.ErrClosed] after Close, and with an [*outbox.FieldError] for nil, and
// for an outbox that has no metrics or another [Metrics].
func (m *Metrics) WatchTable(source interface {
	Stats(ctx context.Context) (outbox.Stats, error)
},
) error {
	reader, err := tablestats.NewReader(m, source, func(stats outbox.Stats, err error) {
		if err == nil { // the engine reports the depths only when it stores outcomes
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

// table collects the figures of the outbox table.
type table struct {
	reader *tablestats.Reader
	descs  [tablestats.Figures]*prometheus.Desc
	kinds  [tablestats.Figures]prometheus.ValueType
	share  *prometheus.Desc
	late   *prometheus.Desc
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
	// labelled also without event labels: the kinds are those of rules
	ofKind := func(d tablestats.Description, suffix string) *prometheus.Desc {
		name := strings.ReplaceAll(d.Name, ".", "_") + suffix
		return prometheus.NewDesc(prometheus.BuildFQName(o.prefix, "", name), d.Help, []string{LabelEventType, LabelAggregateType}, o.labels)
	}
	t.share, t.late = ofKind(tablestats.Share, ""), ofKind(tablestats.LateAge, "_seconds")
	return t
}

// Describe implements [prometheus.Collector].
func (t *table) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range t.descs {
		ch <- d
	}
	ch <- t.share
	ch <- t.late
}

// Collect implements [prometheus.Collector].
func (t *table) Collect(ch chan<- prometheus.Metric) {
	values, ok := t.reader.Values(context.Background())
	if !ok {
		return
	}
	values.Each(func(f tablestats.Figure, value float64) {
		ch <- prometheus.MustNewConstMetric(t.descs[f], t.kinds[f], value)
	})
	values.EachShare(func(kind outbox.EventKind, share float64) {
		ch <- prometheus.MustNewConstMetric(t.share, prometheus.GaugeValue, share, valid(kind.EventType), valid(kind.AggregateType))
	})
	values.EachLate(func(kind outbox.EventKind, age float64) {
		ch <- prometheus.MustNewConstMetric(t.late, prometheus.GaugeValue, age, valid(kind.EventType), valid(kind.AggregateType))
	})
}

// close ends a running read.
func (t *table) close() error {
	if err := t.reader.Close(); err != nil {
		return fmt.Errorf("outboxprom: closing: %w", err)
	}
	return nil
}
