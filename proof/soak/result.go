package soak

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Result is the result of a run.
type Result struct {
	Options Options
	// Server is the version of the database.
	Server string
	// Written are events whose transaction committed, Delivered the successes of their
	// listener.
	Written, Delivered int
	// Problems are the faults of the outbox; empty when the run is good.
	Problems []string
	Samples  []Sample
}

// phase is a part of a run.
type phase struct {
	name    string
	samples []Sample
}

// phases are the parts before, during and after the held transaction. The first tenth of the run
// belongs to no part, because the table still fills. The last part begins half-way between the
// release and the end.
func (r Result) phases() []phase {
	before, held, after := phase{name: "before"}, phase{name: "held, second half"}, phase{name: "afterwards"}
	from := r.Options.Time / 6
	until := from + r.Options.Held
	for _, s := range r.Samples {
		switch {
		case s.Held && s.At > (from+until)/2:
			held.samples = append(held.samples, s)
		case s.At > r.Options.Time/10 && s.At <= from:
			before.samples = append(before.samples, s)
		case s.At > (until+r.Options.Time)/2:
			after.samples = append(after.samples, s)
		}
	}
	return []phase{before, held, after}
}

// median of a figure of the samples.
func (p phase) median(of func(Sample) float64) float64 {
	if len(p.samples) == 0 {
		return 0
	}
	all := make([]float64, len(p.samples))
	for i, s := range p.samples {
		all[i] = of(s)
	}
	slices.Sort(all)
	return all[len(all)/2]
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func mebibytes(n int64) float64 { return float64(n) / (1 << 20) }

// figures are the rows of the table. Each is the median of the samples of a phase.
var figures = []struct {
	name, format string
	of           func(Sample) float64
}{
	{"events written a second", "%.0f", func(s Sample) float64 { return s.Written }},
	{"events delivered a second", "%.0f", func(s Sample) float64 { return s.Delivered }},
	{"hot path: write to delivery, median, ms", "%.1f", func(s Sample) float64 { return milliseconds(s.Hot.Median) }},
	{"hot path, 99 %, ms", "%.1f", func(s Sample) float64 { return milliseconds(s.Hot.P99) }},
	{"cold path: due to delivery, median, ms", "%.1f", func(s Sample) float64 { return milliseconds(s.Cold.Median) }},
	{"cold path, 99 %, ms", "%.1f", func(s Sample) float64 { return milliseconds(s.Cold.P99) }},
	{"a claim, median, ms", "%.1f", func(s Sample) float64 { return milliseconds(s.Claims.Median) }},
	{"a claim, longest of a sample, ms", "%.0f", func(s Sample) float64 { return milliseconds(s.Claims.Max) }},
	{"reading from the start of the table, ms", "%.1f", func(s Sample) float64 { return milliseconds(s.Read) }},
	{"the same, pages", "%.0f", func(s Sample) float64 { return float64(s.Pages) }},
	{"table, MiB", "%.0f", func(s Sample) float64 { return mebibytes(s.Table) }},
	{"indexes, MiB", "%.0f", func(s Sample) float64 { return mebibytes(s.Indexes) }},
	{"dead rows, or transactions in the history list", "%.0f", func(s Sample) float64 { return float64(s.Dead) }},
	{"memory of the program, MiB", "%.0f", func(s Sample) float64 { return mebibytes(int64(s.Memory)) }}, //nolint:gosec // far below the limit
	{"goroutines", "%.0f", func(s Sample) float64 { return float64(s.Goroutines) }},
}

// Table is a summary in Markdown. There is no plot: any plotting program reads the JSON.
func (r Result) Table() string {
	var s strings.Builder
	phases := r.phases()
	fmt.Fprintf(&s, "| median of the samples | %s | %s | %s |\n|---|---|---|---|\n", phases[0].name, phases[1].name, phases[2].name)
	for _, f := range figures {
		if f.name == "the same, pages" && r.Options.Database != "postgres" {
			continue
		}
		fmt.Fprintf(&s, "| %s |", f.name)
		for _, p := range phases {
			fmt.Fprintf(&s, " "+f.format+" |", p.median(f.of))
		}
		s.WriteString("\n")
	}
	return s.String()
}

// String is a summary for people.
func (r Result) String() string {
	o := r.Options
	s := fmt.Sprintf("%s\n%v at %d events a second by %d nodes, a transaction held for %v from %v on\n%d events written, %d delivered\n\n%s\n",
		r.Server, o.Time, o.Rate, o.Nodes, o.Held, o.Time/6, r.Written, r.Delivered, r.Table())
	if len(r.Problems) == 0 {
		return s + "ok\n"
	}
	return s + "FAILED: " + strings.Join(r.Problems, "; ") + "\n"
}

// JSON is the result with all samples, a line each. Times are nanoseconds.
func (r Result) JSON() ([]byte, error) {
	samples := r.Samples
	r.Samples = nil
	text, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	var s strings.Builder
	s.Write(text)
	s.WriteString("\n")
	for _, sample := range samples {
		line, err := json.Marshal(sample)
		if err != nil {
			return nil, err
		}
		s.Write(line)
		s.WriteString("\n")
	}
	return []byte(s.String()), nil
}

// few pages do not matter.
const few = 2000

// unrecovered is a problem when reading does not become cheap again after the held
// transaction.
func (r Result) unrecovered() []string {
	phases := r.phases()
	pages := func(s Sample) float64 { return float64(s.Pages) }
	held, after := phases[1].median(pages), phases[2].median(pages)
	if after > max(held/4, few) {
		return []string{fmt.Sprintf("after the held transaction, reading from the start of the table takes %.0f pages; it took %.0f meanwhile", after, held)}
	}
	return nil
}
