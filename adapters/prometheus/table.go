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
	pauses *prometheus.Desc
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
	// labelled also without event labels: the kinds are of rules and of pauses
	ofKind := func(d tablestats.Description, suffix string) *prometheus.Desc {
		name := strings.ReplaceAll(d.Name, ".", "_") + suffix
		return prometheus.NewDesc(prometheus.BuildFQName(o.prefix, "", name), d.Help, []string{LabelEventType, LabelAggregateType}, o.labels)
	}
	t.share, t.late, t.pauses = ofKind(tablestats.Share, ""), ofKind(tablestats.LateAge, "_seconds"), ofKind(tablestats.PauseAge, "_seconds")
	return t
}

// Describe implements [prometheus.Collector].
func (t *table) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range t.descs {
		ch <- d
	}
	ch <- t.share
	ch <- t.late
	ch <- t.pauses
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
	collectKinds(ch, t.share, values.EachShare)
	collectKinds(ch, t.late, values.EachLate)
	collectKinds(ch, t.pauses, values.EachPause)
}

// collectKinds collects a value of each kind. Of several kinds that have the same labels, because they
// differ only in bytes that are not UTF-8, the first is collected: with a duplicate the whole scrape fails.
func collectKinds(ch chan<- prometheus.Metric, desc *prometheus.Desc, each func(func(outbox.EventKind, float64))) {
	seen := map[[2]string]bool{}
	each(func(kind outbox.EventKind, value float64) {
		labels := [2]string{valid(kind.EventType), valid(kind.AggregateType)}
		if !seen[labels] {
			seen[labels] = true
			ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels[:]...)
		}
	})
}

// close ends a running read.
func (t *table) close() error {
	if err := t.reader.Close(); err != nil {
		return fmt.Errorf("outboxprom: closing: %w", err)
	}
	return nil
}
