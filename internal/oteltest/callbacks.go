// Package oteltest has what the tests of more than one package ask of a provider
// of OpenTelemetry's.
package oteltest

import (
	"sync/atomic"

	"go.opentelemetry.io/otel/metric"
)

// Callbacks is a provider that counts the callbacks that it has at the moment:
// what is left with it after its user is gone is read for ever.
type Callbacks struct {
	metric.MeterProvider
	count atomic.Int32
}

// Count is how many there are.
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
