package outboxfx

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	outboxprom "github.com/outboxkit/outbox-go/adapters/prometheus"
	"github.com/outboxkit/outbox-go/outbox"
)

// outboxLabel is the label, and the attribute, that tells the figures of a named
// outbox from others'. Its value is the name.
const outboxLabel = "outbox"

// noPrefix stands for the names' prefix where it is asked whether options give
// another one.
const noPrefix = "outboxfx"

// scraped are metrics that are registered when the outbox starts.
type scraped struct {
	*outboxprom.Metrics
	gate *gate
	to   prometheus.Registerer // nil: that of the app, for metrics.enabled without an option
	opts []outboxprom.Option
}

// prometheusMetrics makes the metrics of the outbox, without registering them. The
// unnamed outbox has the label, empty, when there are named ones: a registry
// wants the same labels of all, and for Prometheus an empty one is none.
func (m *module) prometheusMetrics(c resolved, to prometheus.Registerer, known []moduleName, opts []outboxprom.Option) (outbox.Metrics, error) {
	if !c.metricsEnabled() {
		return outbox.NopMetrics{}, nil
	}
	labels, prefixed, err := inspect(opts)
	if err != nil {
		return nil, err
	}
	if prefixed && c.Metrics.NamePrefix != "" {
		return nil, m.conflict("metrics.name-prefix", "is set, but outboxprom.WithPrefix replaces it")
	}
	if c.Metrics.NamePrefix != "" {
		opts = append([]outboxprom.Option{outboxprom.WithPrefix(c.Metrics.NamePrefix)}, opts...)
	}
	if _, given := labels[outboxLabel]; !given && (m.name != "" || len(known) > 1) {
		labels[outboxLabel] = m.name
		opts = append(opts[:len(opts):len(opts)], outboxprom.WithConstLabels(labels))
	}
	s := &scraped{gate: &gate{}, to: to, opts: opts}
	if s.Metrics, err = outboxprom.New(s.gate, opts...); err != nil {
		return nil, err
	}
	return s, nil
}

// inspect finds out which constant labels options give, and whether a prefix.
func inspect(opts []outboxprom.Option) (labels prometheus.Labels, prefixed bool, err error) {
	registry := prometheus.NewRegistry()
	if _, err := outboxprom.New(registry, append([]outboxprom.Option{outboxprom.WithPrefix(noPrefix)}, opts...)...); err != nil {
		return nil, false, err
	}
	families, err := registry.Gather()
	if err != nil {
		return nil, false, fmt.Errorf("outboxfx: reading the names of metrics: %w", err)
	}
	labels = prometheus.Labels{}
	for _, family := range families {
		const plain = "_queue_hot_depth" // is of no kind of event, so that all its labels are constant
		if !strings.HasSuffix(family.GetName(), plain) {
			continue
		}
		prefixed = family.GetName() != noPrefix+plain
		for _, label := range family.GetMetric()[0].GetLabel() {
			labels[label.GetName()] = label.GetValue()
		}
	}
	return labels, prefixed, nil
}

// metricsOfConfig are the metrics of an outbox that no option gives any. Which
// registry they are for is asked later: it may depend on the outbox.
func (m *module) metricsOfConfig(c resolved, known []moduleName) (outbox.Metrics, error) {
	if c.Metrics.Enabled == nil {
		return nil, nil
	}
	return m.prometheusMetrics(c, nil, known, nil)
}

// scrapes finds the registry of metrics that have none, and sees whether it takes
// them.
func (m *module) scrapes(p parts, registerer prometheus.Registerer) error {
	s, ok := p.metrics.(*scraped)
	if !ok {
		return nil
	}
	if s.to == nil {
		s.to = registerer
	}
	if isNil(s.to) {
		return m.conflict("metrics.enabled", "is true, but the module is given no metrics; add WithMetrics, WithPrometheus or WithOTelMetrics, or provide a prometheus.Registerer, with all that its constructor needs")
	}
	if err := s.rehearse(); err != nil {
		return fmt.Errorf("outboxfx: the metrics of %s: %w", describe(m.name), err)
	}
	return nil
}

// rehearse reports what registering the metrics would.
func (s *scraped) rehearse() error {
	trial, err := outboxprom.New(rehearsal{s.to}, s.opts...)
	if err != nil {
		return err
	}
	return errors.Join(trial.WatchTable(noTable{}), trial.Close())
}

// noTable is the table of a rehearsal, which nobody reads.
type noTable struct{}

func (noTable) Stats(context.Context) (outbox.Stats, error) { return outbox.Stats{}, nil }

// register registers the metrics. What the rehearsal says is better to read.
func (s *scraped) register() error {
	if err := s.rehearse(); err != nil {
		return err
	}
	if err := s.gate.open(s.to); err != nil {
		return fmt.Errorf("registering the metrics: %w", err)
	}
	return nil
}

// beginMetrics begins what metrics do when the outbox starts.
func beginMetrics(metrics outbox.Metrics, o *outbox.Outbox) error {
	if s, ok := metrics.(*scraped); ok {
		if err := s.register(); err != nil {
			return err
		}
	}
	return watchTable(metrics, o)
}
