package soak

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// curve is a figure of the samples over time.
type curve struct {
	name string
	of   func(Sample) float64
}

// panel is a small plot of figures that have the same unit.
type panel struct {
	title  string // with the unit
	curves []curve
}

var panels = []panel{
	{"events a second", []curve{
		{"written", func(s Sample) float64 { return s.Written }},
		{"delivered", func(s Sample) float64 { return s.Delivered }},
	}},
	{"pending events, thousands", []curve{{"pending", func(s Sample) float64 { return float64(s.Pending) / 1000 }}}},
	{"fresh events: write to delivery, ms", []curve{
		{"median", func(s Sample) float64 { return milliseconds(s.Hot.Median) }},
		{"99 %", func(s Sample) float64 { return milliseconds(s.Hot.P99) }},
	}},
	{"backlog: write to delivery, s", []curve{
		{"median", func(s Sample) float64 { return s.Backlog.Median.Seconds() }},
		{"99 %", func(s Sample) float64 { return s.Backlog.P99.Seconds() }},
	}},
	{"delayed events and retries: due to delivery, s", []curve{
		{"median", func(s Sample) float64 { return s.Cold.Median.Seconds() }},
		{"99 %", func(s Sample) float64 { return s.Cold.P99.Seconds() }},
	}},
	{"size, MiB", []curve{
		{"table", func(s Sample) float64 { return mebibytes(s.Table) }},
		{"indexes", func(s Sample) float64 { return mebibytes(s.Indexes) }},
	}},
	{"write-ahead log for an event, bytes", []curve{{"log", Sample.walOfEvent}}},
	{"memory of the program, MiB", []curve{
		{"heap in use", func(s Sample) float64 { return mebibytes(int64(s.Memory)) }}, //nolint:gosec // far below the limit
		{"in RAM", func(s Sample) float64 { return mebibytes(int64(s.RSS)) }},         //nolint:gosec // far below the limit
	}},
	{"garbage that the database has to remove, thousands", []curve{{"dead rows", func(s Sample) float64 { return float64(s.Dead) / 1000 }}}},
	{"dead letters", []curve{{"DEAD", func(s Sample) float64 { return float64(s.DeadLetters) }}}},
}

// The measures of a plot, in pixels.
const (
	plotWidth = 800
	plotLeft  = 70
	plotRight = 20
	plotRow   = 130 // a panel with its title
	plotTitle = 30  // of a panel
	plotFoot  = 45  // the axis of the time
)

var plotColors = []string{"#0969da", "#bc4c00"}

// Plot is the run as a picture in SVG: figures over the time, one above the other. A figure that
// this kind of run does not have is left out.
func (r Result) Plot() string {
	shown := slices.DeleteFunc(slices.Clone(panels), func(p panel) bool {
		return !slices.ContainsFunc(p.curves, func(c curve) bool { return r.most(c) > 0 })
	})
	var s strings.Builder
	height := len(shown)*plotRow + plotFoot
	fmt.Fprintf(&s, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %[1]d %[2]d" width="%[1]d" height="%[2]d" role="img" font-family="system-ui, sans-serif" font-size="12" fill="#1f2328">`+"\n", plotWidth, height)
	fmt.Fprintf(&s, "<title>%d events delivered in %v</title>\n<rect width=\"%d\" height=\"%d\" fill=\"#ffffff\"/>\n", r.Delivered, r.Took.Round(time.Second), plotWidth, height)
	for i, p := range shown {
		r.draw(&s, p, i*plotRow)
	}
	if len(r.Samples) > 0 {
		r.drawTime(&s, len(shown)*plotRow)
	}
	s.WriteString("</svg>\n")
	return s.String()
}

// most is the largest value of a curve.
func (r Result) most(c curve) (most float64) {
	for _, sample := range r.Samples {
		most = max(most, c.of(sample))
	}
	return most
}

// draw draws a panel at a height.
func (r Result) draw(s *strings.Builder, p panel, top int) {
	var most float64
	for _, c := range p.curves {
		most = max(most, r.most(c))
	}
	most = rounded(most)
	high, low := float64(top+plotTitle), float64(top+plotRow-10)
	place := func(value float64) float64 { return low - (low-high)*value/most }
	for _, value := range []float64{0, most / 2, most} {
		y := place(value)
		fmt.Fprintf(s, `<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#d0d7de"/>`+"\n", plotLeft, plotWidth-plotRight, y, y)
		text(s, plotLeft-6, y+4, "end", "#57606a", amount(value))
	}
	fmt.Fprintf(s, `<text x="%d" y="%d" font-weight="600">%s</text>`+"\n", plotLeft, top+20, p.title)
	x := float64(plotWidth - plotRight)
	for i := len(p.curves) - 1; i >= 0; i-- {
		c, color := p.curves[i], plotColors[i]
		values := make([]float64, len(r.Samples))
		points := make([]string, len(r.Samples))
		for i, sample := range r.Samples {
			values[i] = c.of(sample)
			points[i] = fmt.Sprintf("%.1f,%.1f", r.across(sample.At), place(values[i]))
		}
		fmt.Fprintf(s, `<polyline fill="none" stroke="%s" stroke-width="1.5" points="%s"/>`+"\n", color, strings.Join(points, " "))
		label := fmt.Sprintf("%s %s to %s", c.name, amount(slices.Min(values)), amount(slices.Max(values)))
		text(s, x, float64(top+20), "end", color, label)
		x -= 6.5*float64(len(label)) + 20
	}
}

// drawTime draws the axis of the time.
func (r Result) drawTime(s *strings.Builder, top int) {
	unit, name := time.Second, "seconds"
	if r.length() > 3*time.Minute {
		unit, name = time.Minute, "minutes"
	}
	step := rounded(float64(r.length()) / float64(unit) / 10)
	for at := 0.0; at <= float64(r.length())/float64(unit); at += step {
		text(s, r.across(time.Duration(at*float64(unit))), float64(top+8), "middle", "#57606a", amount(at))
	}
	text(s, (plotWidth+plotLeft-plotRight)/2, float64(top+28), "middle", "#57606a", name)
}

// length is the time of all samples.
func (r Result) length() time.Duration { return r.Samples[len(r.Samples)-1].At }

// across is the place of a time.
func (r Result) across(at time.Duration) float64 {
	return plotLeft + (plotWidth-plotLeft-plotRight)*float64(at)/float64(r.length())
}

func text(s *strings.Builder, x, y float64, anchor, color, value string) {
	fmt.Fprintf(s, `<text x="%.1f" y="%.1f" text-anchor="%s" fill="%s">%s</text>`+"\n", x, y, anchor, color, value)
}

// rounded is the next value that is a good end of an axis.
func rounded(value float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(value)))
	for _, factor := range []float64{1, 1.5, 2, 3, 4, 5, 6, 8} {
		if value <= factor*power {
			return factor * power
		}
	}
	return 10 * power
}

// amount is a number with about three digits, or with thousands.
func amount(value float64) string {
	switch {
	case value >= 1000:
		digits := strconv.FormatFloat(value, 'f', 0, 64)
		for at := len(digits) - 3; at > 0; at -= 3 {
			digits = digits[:at] + "," + digits[at:]
		}
		return digits
	case value >= 100:
		return strconv.FormatFloat(value, 'f', 0, 64)
	default:
		return strconv.FormatFloat(value, 'g', 3, 64)
	}
}
