package outboxotel

import (
	"errors"
	"fmt"

	"go.opentelemetry.io/otel/metric"

	"github.com/outboxkit/outbox-go/internal/tablestats"
)

// The bounds of the histograms' buckets. The bounds of the latency range from the hot path to late
// retries; the defaults of SDKs are for milliseconds.
var (
	latencyBounds  = []float64{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200}
	durationBounds = []float64{0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60}
	batchBounds    = []float64{0, 1, 2, 5, 10, 25, 50, 100, 250, 500, 1000}
)

// instruments makes instruments of a meter and collects the errors.
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
	c, err := in.meter.Int64Counter(in.prefix+"."+name, metric.WithUnit(tablestats.Events), metric.WithDescription(what))
	in.check(name, err)
	return c
}

func (in *instruments) seconds(name, what string, bounds []float64) metric.Float64Histogram {
	h, err := in.meter.Float64Histogram(in.prefix+"."+name, metric.WithUnit(tablestats.Seconds), metric.WithDescription(what), metric.WithExplicitBucketBoundaries(bounds...))
	in.check(name, err)
	return h
}

func (in *instruments) sizes(name, what string, bounds []float64) metric.Int64Histogram {
	h, err := in.meter.Int64Histogram(in.prefix+"."+name, metric.WithUnit(tablestats.Events), metric.WithDescription(what), metric.WithExplicitBucketBoundaries(bounds...))
	in.check(name, err)
	return h
}

func (in *instruments) number(name, unit, what string) metric.Int64ObservableGauge {
	g, err := in.meter.Int64ObservableGauge(in.prefix+"."+name, metric.WithUnit(unit), metric.WithDescription(what))
	in.check(name, err)
	return g
}

func (in *instruments) age(name, what string) metric.Float64ObservableGauge {
	g, err := in.meter.Float64ObservableGauge(in.prefix+"."+name, metric.WithUnit(tablestats.Seconds), metric.WithDescription(what))
	in.check(name, err)
	return g
}

func (in *instruments) ratio(d tablestats.Description) metric.Float64ObservableGauge {
	g, err := in.meter.Float64ObservableGauge(in.prefix+"."+d.Name, metric.WithUnit(d.Unit), metric.WithDescription(d.Help))
	in.check(d.Name, err)
	return g
}

// observeFunc reports a value of an instrument.
type observeFunc func(o metric.Observer, value float64)

// figure makes the instrument of a figure of the table.
func (in *instruments) figure(d tablestats.Description, opts []metric.ObserveOption) (metric.Observable, observeFunc) {
	switch d.Unit {
	case tablestats.Seconds:
		g := in.age(d.Name, d.Help)
		return g, func(o metric.Observer, value float64) { o.ObserveFloat64(g, value, opts...) }
	case tablestats.Errors:
		c, err := in.meter.Int64ObservableCounter(in.prefix+"."+d.Name, metric.WithUnit(d.Unit), metric.WithDescription(d.Help))
		in.check(d.Name, err)
		return c, func(o metric.Observer, value float64) { o.ObserveInt64(c, int64(value), opts...) }
	default:
		g := in.number(d.Name, d.Unit, d.Help)
		return g, func(o metric.Observer, value float64) { o.ObserveInt64(g, int64(value), opts...) }
	}
}
