package soak

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// line is one line of a panel.
type line struct {
	name string
	of   func(Sample) float64
}

// panel is one of the diagrams of a plot; logarithmic, unless linear.
type panel struct {
	title  string
	linear bool
	lines  []line
}

func panels(r Result) []panel {
	all := []panel{
		{"events a second", true, []line{
			{"written", func(s Sample) float64 { return s.Written }},
			{"delivered", func(s Sample) float64 { return s.Delivered }},
		}},
		{"time to delivery, 99 %, ms", false, []line{
			{"hot path, from the write", func(s Sample) float64 { return milliseconds(s.Hot.P99) }},
			{"cold path, from when it is due", func(s Sample) float64 { return milliseconds(s.Cold.P99) }},
		}},
		{"claim, ms", false, []line{
			{"median", func(s Sample) float64 { return milliseconds(s.Claims.Median) }},
			{"longest", func(s Sample) float64 { return milliseconds(s.Claims.Max) }},
		}},
		{"reading from the start of the table, pages", false, []line{
			{"", func(s Sample) float64 { return float64(s.Pages) }},
		}},
		{"size, MiB", true, []line{
			{"table", func(s Sample) float64 { return mebibytes(s.Table) }},
			{"indexes", func(s Sample) float64 { return mebibytes(s.Indexes) }},
		}},
		{"dead rows", true, []line{{"", func(s Sample) float64 { return float64(s.Dead) }}}},
	}
	if r.Options.Database != "postgres" {
		all[3] = panel{"reading from the start of the table, ms", false, []line{{"", func(s Sample) float64 { return milliseconds(s.Read) }}}}
		all[5].title = "history list, transactions"
	}
	return all
}

// The sizes of a plot.
const (
	left, width  = 70, 780
	height, step = 120, 175
)

var colours = []string{"#1f5fa8", "#c4501b"}

// Plot is a plot of the samples, as SVG. The time of the held transaction is grey.
func (r Result) Plot() string {
	var s strings.Builder
	all := panels(r)
	total := 40 + step*len(all)
	fmt.Fprintf(&s, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" font-family="sans-serif" font-size="12">`+"\n", left+width+30, total)
	fmt.Fprintf(&s, `<rect width="100%%" height="100%%" fill="white"/>`+"\n")
	for i, p := range all {
		fmt.Fprintf(&s, `<g transform="translate(%d,%d)">`+"\n", left, 30+i*step)
		r.panel(&s, p)
		s.WriteString("</g>\n")
	}
	fmt.Fprintf(&s, `<text x="%d" y="%d" text-anchor="middle">minutes; grey: another transaction is held open</text>`+"\n</svg>\n", left+width/2, total-8)
	return s.String()
}

func (r Result) x(at time.Duration) float64 {
	return float64(width) * float64(at) / float64(max(r.Options.Time, r.Samples[len(r.Samples)-1].At))
}

func (r Result) panel(s *strings.Builder, p panel) {
	from := r.Options.Time / 6
	fmt.Fprintf(s, `<rect x="%.1f" width="%.1f" height="%d" fill="#e8e8e8"/>`+"\n", r.x(from), r.x(r.Options.Held), height)
	fmt.Fprintf(s, `<path d="M0,0V%d H%d" fill="none" stroke="black"/>`+"\n", height, width)
	fmt.Fprintf(s, `<text y="-8" font-weight="bold">%s</text>`+"\n", p.title)
	scale := p.scale(r.Samples)
	for _, mark := range scale.marks() {
		fmt.Fprintf(s, `<path d="M-4,%.1f H%d" stroke="#ccc"/><text x="-8" y="%.1f" text-anchor="end">%s</text>`+"\n", scale.y(mark), width, scale.y(mark)+4, number(mark))
	}
	for i := range 7 {
		at := r.Options.Time * time.Duration(i) / 6
		fmt.Fprintf(s, `<text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n", r.x(at), height+16, number(math.Round(at.Minutes()*10)/10))
	}
	for i, l := range p.lines {
		fmt.Fprintf(s, `<text x="%d" y="-8" text-anchor="end" fill="%s">%s</text>`+"\n", width-230*(len(p.lines)-1-i), colours[i], l.name)
		fmt.Fprintf(s, `<polyline fill="none" stroke="%s" points="`, colours[i])
		for _, sample := range r.Samples {
			fmt.Fprintf(s, "%.1f,%.1f ", r.x(sample.At), scale.y(l.of(sample)))
		}
		s.WriteString(`"/>` + "\n")
	}
}

func number(n float64) string {
	return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.2f", n), "0"), ".")
}

// scale is that of a panel's figures. A logarithmic one goes from a power of ten to one.
type scale struct {
	linear      bool
	least, most float64
}

func (p panel) scale(samples []Sample) scale {
	least, most := math.Inf(1), 1.0
	for _, s := range samples {
		for _, l := range p.lines {
			if n := l.of(s); n > 0 {
				least, most = min(least, n), max(most, n)
			}
		}
	}
	if p.linear {
		return scale{true, 0, most}
	}
	return scale{false, math.Pow(10, math.Floor(math.Log10(min(least, most)))), math.Pow(10, math.Ceil(math.Log10(most)+1e-9))}
}

func (s scale) y(n float64) float64 {
	part := (n - s.least) / (s.most - s.least)
	if !s.linear {
		part = math.Log(max(n, s.least)/s.least) / math.Log(s.most/s.least)
	}
	return height * (1 - part)
}

// marks are the figures that the axis shows.
func (s scale) marks() (all []float64) {
	if !s.linear {
		for n := s.least; n <= s.most*1.01; n *= 10 {
			all = append(all, n)
		}
		return all
	}
	unit := math.Pow(10, math.Floor(math.Log10(s.most)))
	if s.most < 3*unit {
		unit /= 2
	}
	for n := 0.0; n <= s.most; n += unit {
		all = append(all, n)
	}
	return all
}
