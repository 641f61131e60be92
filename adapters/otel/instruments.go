package outboxotel

import (
	"errors"
	"fmt"

	"go.opentelemetry.io/otel/metric"
)

// The units, in the notation that OpenTelemetry has them in.
const (
	unitEvents  = "{event}"
	unitSeconds = "s"
)

// The bounds of the histograms' buckets. Those of the latency reach from the hot
// path to the retry of an event that others were waiting for, too; the default
// ones of SDKs are made for milliseconds.
var (
	latencyBounds  = []float64{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200}
	durationBounds = []float64{0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60}
	batchBounds    = []float64{0, 1, 2, 5, 10, 25, 50, 100, 250, 500, 1000}
)

// instruments makes instruments of one meter and keeps what goes wrong.
type instruments struct {
	meter  metric.Meter
	prefix string
	errs   []error
}

func (in *instruments) check(name string, err error) {
	if err != nil {
		in.errs = append(in.errs, fmt.Errorf("outboxotel: making the instrument %s.%s: %w", in.prefix, name, err))
	}
}

func (in *instruments) err() error { return errors.Join(in.errs...) }

func (in *instruments) counter(name, what string) metric.Int64Counter {
	c, err := in.meter.Int64Counter(in.prefix+"."+name, metric.WithUnit(unitEvents), metric.WithDescription(what))
	in.check(name, err)
	return c
}

func (in *instruments) seconds(name, what string, bounds []float64) metric.Float64Histogram {
	h, err := in.meter.Float64Histogram(in.prefix+"."+name, metric.WithUnit(unitSeconds), metric.WithDescription(what),
		metric.WithExplicitBucketBoundaries(bounds...))
	in.check(name, err)
	return h
}

func (in *instruments) sizes(name, what string, bounds []float64) metric.Int64Histogram {
	h, err := in.meter.Int64Histogram(in.prefix+"."+name, metric.WithUnit(unitEvents), metric.WithDescription(what),
		metric.WithExplicitBucketBoundaries(bounds...))
	in.check(name, err)
	return h
}

func (in *instruments) depth(name, what string) metric.Int64ObservableGauge {
	g, err := in.meter.Int64ObservableGauge(in.prefix+"."+name, metric.WithUnit(unitEvents), metric.WithDescription(what))
	in.check(name, err)
	return g
}

func (in *instruments) lag(name, what string) metric.Float64ObservableGauge {
	g, err := in.meter.Float64ObservableGauge(in.prefix+"."+name, metric.WithUnit(unitSeconds), metric.WithDescription(what))
	in.check(name, err)
	return g
}
