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
	// Written are events whose transaction committed, Delivered those whose listener succeeded, and
	// Repeated further successes of a listener.
	Written, Delivered, Repeated int
	// Took is the time from the first event to the last delivery. Drops are the times from the
	// lock of the table to the end of the drop of a partition.
	Took  time.Duration
	Drops Spread
	// Problems are the faults of the outbox; empty when the run is good.
	Problems []string
	Samples  []Sample
}

// phase is a part of a run.
type phase struct {
	name    string
	samples []Sample
}

// phases are the parts before, during and after the held transaction, or in a run by events thirds.
// The first tenth of the run belongs to no part, because the table still fills. The part after the
// held transaction begins half-way between the release and the end.
func (r Result) phases() []phase {
	if r.Options.Events > 0 {
		n := len(r.Samples)
		thirds := r.Samples[n/10:]
		n = len(thirds)
		return []phase{{"first third", thirds[:n/3]}, {"second third", thirds[n/3 : n*2/3]}, {"last third", thirds[n*2/3:]}}
	}
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
	{"backlog: write to delivery, median, s", "%.1f", func(s Sample) float64 { return s.Backlog.Median.Seconds() }},
	{"backlog, 99 %, s", "%.1f", func(s Sample) float64 { return s.Backlog.P99.Seconds() }},
	{"pending events", "%.0f", func(s Sample) float64 { return float64(s.Pending) }},
	{"dead letters", "%.0f", func(s Sample) float64 { return float64(s.DeadLetters) }},
	{"a claim, median, ms", "%.1f", func(s Sample) float64 { return milliseconds(s.Claims.Median) }},
	{"a claim, longest of a sample, ms", "%.0f", func(s Sample) float64 { return milliseconds(s.Claims.Max) }},
	{"reading from the start of the table, ms", "%.1f", func(s Sample) float64 { return milliseconds(s.Read) }},
	{"the same, pages", "%.0f", func(s Sample) float64 { return float64(s.Pages) }},
	{"table, MiB", "%.0f", func(s Sample) float64 { return mebibytes(s.Table) }},
	{"indexes, MiB", "%.0f", func(s Sample) float64 { return mebibytes(s.Indexes) }},
	{"dead rows, or transactions in the history list", "%.0f", func(s Sample) float64 { return float64(s.Dead) }},
	{"partitions", "%.0f", func(s Sample) float64 { return float64(s.Partitions) }},
	{"write-ahead log for an event, bytes", "%.0f", Sample.walOfEvent},
	{"memory of the program, MiB", "%.0f", func(s Sample) float64 { return mebibytes(int64(s.Memory)) }}, //nolint:gosec // far below the limit
	{"the same in RAM, MiB", "%.0f", func(s Sample) float64 { return mebibytes(int64(s.RSS)) }},          //nolint:gosec // far below the limit
	{"goroutines", "%.0f", func(s Sample) float64 { return float64(s.Goroutines) }},
}

// Table is a summary in Markdown.
func (r Result) Table() string {
	var s strings.Builder
	phases := r.phases()
	fmt.Fprintf(&s, "| median of the samples | %s | %s | %s |\n|---|---|---|---|\n", phases[0].name, phases[1].name, phases[2].name)
	for _, f := range figures {
		if !slices.ContainsFunc(r.Samples, func(s Sample) bool { return f.of(s) != 0 }) {
			continue // the database or this kind of run has no such figure
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
	kind := fmt.Sprintf("%v at %d events a second by %d nodes, a transaction held for %v from %v on", o.Time, o.Rate, o.Nodes, o.Held, o.Time/6)
	if o.Events > 0 {
		kind = fmt.Sprintf("%d events by %d nodes in %v, %.0f a second: %d pending, %d a second in transactions, partitions of %v",
			o.Events, o.Nodes, r.Took, float64(r.Delivered)/r.Took.Seconds(), o.Pending, o.Rate, o.Partition)
		kind += fmt.Sprintf("\n%d partitions dropped, each in %v at the median, %v at most", r.Drops.Count, r.Drops.Median.Round(time.Millisecond), r.Drops.Max.Round(time.Millisecond))
	}
	s := fmt.Sprintf("%s\n%s\n%d events written, %d delivered, %d deliveries repeated\n\n%s\n",
		r.Server, kind, r.Written, r.Delivered, r.Repeated, r.Table())
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

// walOfEvent is the write-ahead log for a delivered event, with its write.
func (s Sample) walOfEvent() float64 {
	span := s.Delivered * s.Span.Seconds()
	if span == 0 {
		return 0
	}
	return float64(s.WAL) / span
}

// unrecovered is a problem when reading does not become cheap again after the held
// transaction.
func (r Result) unrecovered() []string {
	if r.Options.Events > 0 {
		return nil
	}
	phases := r.phases()
	pages := func(s Sample) float64 { return float64(s.Pages) }
	held, after := phases[1].median(pages), phases[2].median(pages)
	if after > max(held/4, few) {
		return []string{fmt.Sprintf("after the held transaction, reading from the start of the table takes %.0f pages; it took %.0f meanwhile", after, held)}
	}
	return nil
}
