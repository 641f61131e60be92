package main

import (
	"encoding/json"
	"math"
	"slices"
	"time"

	"github.com/outboxkit/outbox-go/internal/testdb"
)

// results are all results of a run, or of several.
type results struct {
	Machine string       `json:"machine"`
	Works   []workResult `json:"works"`
}

// workResult is one work on one database: a table.
type workResult struct {
	Database testdb.Kind `json:"database"`
	Work     string      `json:"work"`
	Title    string      `json:"title"`
	Note     string      `json:"note"`
	Taken    time.Time   `json:"taken"`
	Rounds   int         `json:"rounds"`
	// Steal is the most that the machine's host took during a sample, in percent.
	Steal   float64  `json:"steal_percent"`
	Columns []column `json:"columns"`
	Lines   []line   `json:"lines"`

	work     work
	variants []variant
}

// column is one figure of one variant.
type column struct {
	Variant string `json:"variant,omitempty"`
	figure
}

// line is one contender.
type line struct {
	Contender string `json:"contender"`
	Limit     bool   `json:"limit,omitempty"`
	Against   string `json:"against,omitempty"`
	Cells     []cell `json:"cells"` // as the columns
}

type cell struct {
	Samples []float64 `json:"samples"` // none: the contender does not take part
	Median  number64  `json:"median"`
	Low     number64  `json:"low"`
	High    number64  `json:"high"`
	// Ratio to what the contender is compared with; absent where there is nothing.
	Ratio number64 `json:"ratio"`
}

// number64 is null in JSON when it is missing.
type number64 float64

func (n number64) MarshalJSON() ([]byte, error) {
	if n.missing() {
		return []byte("null"), nil
	}
	return json.Marshal(float64(n))
}

func (n *number64) UnmarshalJSON(text []byte) error {
	*n = number64(math.NaN())
	if string(text) == "null" {
		return nil
	}
	return json.Unmarshal(text, (*float64)(n))
}

func (n number64) missing() bool { return math.IsNaN(float64(n)) || math.IsInf(float64(n), 0) }

func newWorkResult(kind testdb.Kind, w work, variants []variant) workResult {
	r := workResult{Database: kind, Work: w.name, Title: w.title, Note: w.note, work: w, variants: variants}
	for _, v := range variants {
		for _, f := range w.figures {
			r.Columns = append(r.Columns, column{v.name, f})
		}
	}
	return r
}

// add adds one sample's values.
func (r *workResult) add(c contender, v variant, values []float64) {
	i := slices.IndexFunc(r.Lines, func(l line) bool { return l.Contender == c.name })
	if i < 0 {
		i = len(r.Lines)
		r.Lines = append(r.Lines, line{Contender: c.name, Limit: c.limit, Against: c.against, Cells: make([]cell, len(r.Columns))})
	}
	for j, at := range r.Columns {
		if at.Variant != v.name {
			continue
		}
		if value := values[j%len(values)]; !number64(value).missing() {
			r.Lines[i].Cells[j].Samples = append(r.Lines[i].Cells[j].Samples, value)
		}
	}
}

// compare computes medians, spreads and ratios, and orders the lines as the
// contenders are.
func (r *workResult) compare() {
	for i := range r.Lines {
		for j := range r.Lines[i].Cells {
			c := &r.Lines[i].Cells[j]
			sorted := slices.Sorted(slices.Values(c.Samples))
			c.Median, c.Low, c.High, c.Ratio = missing, missing, missing, missing
			if n := len(sorted); n > 0 {
				c.Median, c.Low, c.High = number64(median(sorted)), number64(sorted[0]), number64(sorted[n-1])
			}
		}
	}
	order := contenders()
	place := func(l line) int {
		return slices.IndexFunc(order, func(c contender) bool { return c.name == l.Contender })
	}
	slices.SortFunc(r.Lines, func(a, b line) int { return place(a) - place(b) })
	for i := range r.Lines {
		for j := range r.Columns {
			c := &r.Lines[i].Cells[j]
			c.Ratio = c.Median / r.base(r.Lines[i], j)
		}
	}
}

var missing = number64(math.NaN())

// base is what the line's cell is compared with.
func (r *workResult) base(l line, j int) number64 {
	if r.work.ratioToFirst {
		if j < len(r.work.figures) {
			return missing
		}
		return l.Cells[j%len(r.work.figures)].Median
	}
	best := missing
	for _, other := range r.Lines {
		m := other.Cells[j].Median
		switch {
		case l.Against != "" && other.Contender == l.Against:
			return m
		case !other.Limit || l.Limit || m.missing():
		case best.missing(), r.Columns[j].Higher && m > best, !r.Columns[j].Higher && m < best:
			best = m
		}
	}
	return best
}

func median(sorted []float64) float64 {
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// quantile is in units.
func quantile(of []time.Duration, q float64, unit time.Duration) float64 {
	if len(of) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(of))
	at := min(int(q*float64(len(sorted))), len(sorted)-1)
	return float64(sorted[at]) / float64(unit)
}
