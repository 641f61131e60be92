// Package fxprom exports the metrics of an outbox in an fx app to Prometheus.
//
//	outboxfx.NewModule(fxprom.Metrics(prometheus.DefaultRegisterer))
//
// The metrics are the metrics of [outboxprom]. Only an app that imports this package links
// Prometheus.
package fxprom

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	outboxprom "github.com/outboxkit/outbox-go/adapters/prometheus"
	outboxfx "github.com/outboxkit/outbox-go/fxmodule"
	"github.com/outboxkit/outbox-go/outbox"
)

// Metrics exports the figures that [outboxprom.New] counts and the figures that
// [outboxprom.Metrics.WatchTable] reads. A nil registerer is [prometheus.DefaultRegisterer]. The
// metrics are registered when the app starts, and unregistered when the outbox has drained. The
// metrics have the label outbox, whose value is the name of the outbox; the name of the unnamed
// outbox is empty.
func Metrics(registerer prometheus.Registerer, opts ...outboxprom.Option) outboxfx.Option {
	return outboxfx.WithMetrics(func(name outboxfx.Name, c outboxfx.Config) (*metrics, error) {
		if registerer == nil {
			registerer = prometheus.DefaultRegisterer
		}
		if c.Metrics.NamePrefix != "" {
			opts = append([]outboxprom.Option{outboxprom.WithPrefix(c.Metrics.NamePrefix)}, opts...)
		}
		own := prometheus.NewRegistry()
		counted, err := outboxprom.New(own, opts...)
		if err != nil {
			return nil, err
		}
		return &metrics{Metrics: counted, own: own, to: prometheus.WrapRegistererWith(prometheus.Labels{"outbox": string(name)}, registerer)}, nil
	})
}

// metrics keep the collectors in a separate registry, which is a collector itself: an app that is
// built and not started leaves nothing registered.
type metrics struct {
	*outboxprom.Metrics
	own *prometheus.Registry
	to  prometheus.Registerer

	registered atomic.Bool
}

// WatchTable registers the metrics together with the metrics of the table.
func (m *metrics) WatchTable(source interface {
	Stats(ctx context.Context) (outbox.Stats, error)
},
) error {
	if err := m.Metrics.WatchTable(source); err != nil {
		return err
	}
	if err := m.to.Register(m.own); err != nil {
		return fmt.Errorf("fxprom: registering the metrics, whose names may be taken (metrics.name-prefix changes them): %w", err)
	}
	m.registered.Store(true)
	return nil
}

// Close unregisters the metrics.
func (m *metrics) Close() error {
	if m.registered.Swap(false) {
		m.to.Unregister(m.own)
	}
	return m.Metrics.Close()
}
