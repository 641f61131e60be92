// Package oteltest has an OpenTelemetry provider for the tests of several
// packages.
package oteltest

import (
	"sync/atomic"

	"go.opentelemetry.io/otel/metric"
)

// Callbacks is a provider that counts the registered callbacks: a callback that is left behind
// would be called forever.
type Callbacks struct {
	metric.MeterProvider
	count atomic.Int32
}

// Count is the number of registered callbacks.
func (c *Callbacks) Count() int { return int(c.count.Load()) }

// Meter implements [metric.MeterProvider].
func (c *Callbacks) Meter(name string, opts ...metric.MeterOption) metric.Meter {
	return meter{c.MeterProvider.Meter(name, opts...), c}
}

type meter struct {
	metric.Meter
	of *Callbacks
}

func (m meter) RegisterCallback(f metric.Callback, instruments ...metric.Observable) (metric.Registration, error) {
	r, err := m.Meter.RegisterCallback(f, instruments...)
	if err != nil {
		return nil, err
	}
	m.of.count.Add(1)
	return registration{r, m.of}, nil
}

type registration struct {
	metric.Registration
	of *Callbacks
}

func (r registration) Unregister() error {
	r.of.count.Add(-1)
	return r.Registration.Unregister()
}
