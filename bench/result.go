package main

import (
	"encoding/json"
	"math"
	"slices"
	"time"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
)

// results are all results of a run, or of several.
type results struct {
	Works []workResult `json:"works"`
}

// workResult is the result of a work on a database: a table.
type workResult struct {
	Database testdb.Kind `json:"database"`
	Work     string      `json:"work"`
	Title    string      `json:"title"`
	Note     string      `json:"note"`
	Machine  string      `json:"machine"` // and the versions and settings
	Taken    time.Time   `json:"taken"`
	Rounds   int         `json:"rounds"`
	// Steal is the most that the machine's host took during a sample, in percent.
	Steal float64 `json:"steal_percent"`
	// Disturbed is how many samples had too much steal in every try.
	Disturbed int `json:"disturbed,omitempty"`
	// Again is how many deliveries each contender made beyond an event's first.
	Again   map[string]int `json:"again,omitempty"`
	Columns []column       `json:"columns"`
	Lines   []line         `json:"lines"` // in the order of the contenders

	work work
}

// column is a figure of a variant.
type column struct {
	Variant string `json:"variant,omitempty"`
	figure
}

// line is the results of a contender.
type line struct {
	Contender string `json:"contender"`
	Limit     bool   `json:"limit,omitempty"`
	Against   string `json:"against,omitempty"`
	Cells     []cell `json:"cells"` // as the columns
}

type cell struct {
	Samples []number64 `json:"samples"` // by round; empty: the contender does not take part
	summary
	// Ratio is the ratio to the samples that the contender is compared with, in the same round;
	// absent where there are no such samples.
	Ratio       number64 `json:"ratio"`
	RatioSpread number64 `json:"ratio_spread"`
}

// summary is of the rounds.
type summary struct {
	Median number64 `json:"median"`
	Low    number64 `json:"low"`
	High   number64 `json:"high"`
}

// spread is the distance of the farthest round from the median, as a share of the median; missing
// where there is a single round.
func (s summary) spread() number64 {
	if s.Low == s.High {
		return missing
	}
	return max(s.High-s.Median, s.Median-s.Low) / s.Median
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

func newWorkResult(kind testdb.Kind, w work, variants []variant, part []contender, rounds int) workResult {
	r := workResult{
		Database: kind, Work: w.name, Title: w.title, Note: w.note, work: w,
		Taken: time.Now().UTC().Truncate(time.Second), Rounds: rounds, Again: map[string]int{},
	}
	for _, v := range variants {
		for _, f := range w.figures {
			r.Columns = append(r.Columns, column{v.name, f})
		}
	}
	for _, c := range part {
		r.Lines = append(r.Lines, line{Contender: c.name, Limit: c.limit, Against: c.against, Cells: make([]cell, len(r.Columns))})
	}
	return r
}

// add adds a sample.
func (r *workResult) add(round int, t turn, m measurement) {
	i := slices.IndexFunc(r.Lines, func(l line) bool { return l.Contender == t.contender.name })
	for j, at := range r.Columns {
		if at.Variant != t.variant.name {
			continue
		}
		c := &r.Lines[i].Cells[j]
		if c.Samples == nil {
			c.Samples = slices.Repeat([]number64{missing}, r.Rounds)
		}
		c.Samples[round] = number64(m.values[j%len(m.values)])
	}
	r.Steal = max(r.Steal, m.steal)
	if m.steal > disturbed {
		r.Disturbed++
	}
	if m.again > 0 {
		r.Again[t.contender.name] += m.again
	}
}

// compare computes medians, spreads and ratios.
func (r *workResult) compare() {
	each := func(do func(c *cell, l line, j int)) {
		for _, l := range r.Lines {
			for j := range l.Cells {
				do(&l.Cells[j], l, j)
			}
		}
	}
	each(func(c *cell, _ line, _ int) { c.summary = summarize(c.Samples) })
	each(func(c *cell, l line, j int) {
		ratios := summarize(ratios(c.Samples, r.reference(l, j)))
		c.Ratio, c.RatioSpread = ratios.Median, ratios.spread()
	})
}

var missing = number64(math.NaN())

// ratios are the ratios of each round.
func ratios(samples, to []number64) []number64 {
	var ratios []number64
	for round := range min(len(samples), len(to)) {
		ratios = append(ratios, samples[round]/to[round])
	}
	return ratios
}

// reference has the samples that the line's cell is compared with.
func (r *workResult) reference(l line, j int) []number64 {
	if r.work.ratioToFirst {
		if j < len(r.work.figures) {
			return nil
		}
		return l.Cells[j%len(r.work.figures)].Samples
	}
	var best cell
	best.Median = missing
	for _, other := range r.Lines {
		c := other.Cells[j]
		switch {
		case c.Median.missing():
		case other.Contender == l.Against:
			return c.Samples
		case !other.Limit || l.Limit:
		case best.Median.missing(), r.Columns[j].Higher && c.Median > best.Median, !r.Columns[j].Higher && c.Median < best.Median:
			best = c
		}
	}
	return best.Samples
}

// summarize leaves out the rounds that are missing.
func summarize(rounds []number64) summary {
	sorted := slices.DeleteFunc(slices.Sorted(slices.Values(rounds)), number64.missing)
	n := len(sorted)
	if n == 0 {
		return summary{missing, missing, missing}
	}
	return summary{(sorted[(n-1)/2] + sorted[n/2]) / 2, sorted[0], sorted[n-1]}
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
