package chaos

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"
)

// String is a single line, followed, if the run is not ok, by the broken rules, the place of the
// history, and the command that repeats the run.
func (r Result) String() string {
	var s strings.Builder
	verdict := "ok"
	if !r.OK() {
		verdict = "FAILED"
	}
	rep := r.Report
	fmt.Fprintf(&s, "%-6s seed %-10d %-8s %-7s %-11s %2.0fs %s%s; %d transactions (%d unknown), %d events, %d deliveries, %d/%d duplicates explained (chance %.0f %%)",
		verdict, r.Seed, r.Database, r.Spec.Driver, r.Spec.Mode, r.Took.Seconds(), r.faults(), r.conditions(),
		rep.Transactions, rep.Unknown, rep.Events, rep.Deliveries, rep.Explained, rep.Duplicates, 100*rep.ChanceExplained)
	if rep.KeptOut > 0 {
		fmt.Fprintf(&s, ", %d kept out", rep.KeptOut)
	}
	if rep.Changed > 0 {
		fmt.Fprintf(&s, ", %d changes (%d cancelled)", rep.Changed, rep.Cancelled)
	}
	if r.Clients > 0 {
		fmt.Fprintf(&s, ", %d keys in %d requests, %d answers (%d repeated, %d refused)", rep.Keys, rep.Tries, rep.Answers, rep.Repeated, rep.Refused)
	}
	if r.Skipped != nil {
		fmt.Fprintf(&s, "\n       without some faults: %v", r.Skipped)
	}
	if !r.OK() {
		target := "chaos/faults"
		if r.Skew {
			target = "chaos/skew"
		}
		if r.Clients > 0 {
			target = "chaos/requests"
		}
		fmt.Fprintf(&s, "\n%v\n  history: %s\n  again:   make %s CHAOS_SEED=%d CHAOS_DB=%s CHAOS_RUNS=1\n", rep, r.Dir, target, r.Seed, r.Database)
	}
	return s.String()
}

// faults are the faults that were done, by kind.
func (r Result) faults() string {
	var all []string
	for _, kind := range append(Kinds, stall) {
		if n := r.Done[kind]; n > 0 {
			all = append(all, fmt.Sprintf("%d %s", n, kind))
		}
	}
	if len(all) == 0 {
		return "no faults"
	}
	return strings.Join(all, ", ")
}

// conditions are the options that made the whole run harder.
func (r Result) conditions() string {
	var all []string
	for _, c := range []struct {
		name string
		is   bool
	}{
		{"two versions", r.Skew},
		{fmt.Sprintf("%d clients", r.Clients), r.Clients > 0},
		{"operators", r.Operators},
		{"migration", r.Migrates},
		{"writer-only process", r.Writers > 0},
		{fmt.Sprintf("pool of %d", r.Spec.Connections), r.Spec.Connections > 0},
		{"stubborn listeners", r.Spec.Stubborn > 0},
		{"hanging listeners", r.Spec.Hang > 0},
		{"purge", r.Spec.Purge > 0},
		{"sessions abroad", r.Spec.Abroad > 0},
		{"refused texts", r.Spec.Refused},
		{"spoiled rows", r.Spec.Spoil > 0},
		{"unique keys", r.Spec.Unique > 0},
		{"events taken back", r.Spec.TakeBack > 0},
		{"latest states", r.Spec.Latest > 0},
		{"expiring events", r.Spec.Expires > 0},
		{"endless attempts", r.Spec.Endless},
		{"deaf processes", r.Spec.Rare},
		{"receivers down", r.Spec.PauseFor > 0},
		{"a fleet-wide bound", r.Spec.Bounded > 0},
		{"a fleet-wide bound of each key", r.Spec.KeyBounded > 0},
		{"a process that drains", r.Drains > 0},
	} {
		if c.is {
			all = append(all, c.name)
		}
	}
	if len(all) == 0 {
		return ""
	}
	return " (" + strings.Join(all, ", ") + ")"
}

// Table is a summary of many runs: a row for each database, in Markdown.
func Table(results []Result) string {
	var s strings.Builder
	w := tabwriter.NewWriter(&s, 0, 0, 1, ' ', 0)
	_, _ = fmt.Fprintln(w, "| database\t| runs\t| time\t| transactions\t| keys\t| requests\t| answers\t| of them repeated\t| refused\t| events\t| deliveries\t| duplicates\t| of them explained\t| faults\t| runs that broke a rule\t|")
	_, _ = fmt.Fprintln(w, "|---\t|---\t|---\t|---\t|---\t|---\t|---\t|---\t|---\t|---\t|---\t|---\t|---\t|---\t|---\t|")
	for _, database := range Databases {
		var sum Result
		sum.Done = map[string]int{}
		runs, failed := 0, 0
		for _, r := range results {
			if r.Database != database {
				continue
			}
			runs++
			if !r.OK() {
				failed++
			}
			sum.add(r)
		}
		if runs == 0 {
			continue
		}
		_, _ = fmt.Fprintf(w, "| %s\t| %d\t| %v\t| %d\t| %d\t| %d\t| %d\t| %d\t| %d\t| %d\t| %d\t| %d\t| %d\t| %s\t| %d\t|\n", database, runs, sum.Took.Round(time.Second),
			sum.Report.Transactions, sum.Report.Keys, sum.Report.Tries, sum.Report.Answers, sum.Report.Repeated, sum.Report.Refused,
			sum.Report.Events, sum.Report.Deliveries, sum.Report.Duplicates, sum.Report.Explained, sum.faults(), failed)
	}
	_ = w.Flush()
	return s.String()
}

func (r *Result) add(o Result) {
	r.Took += o.Took
	r.Report.Transactions += o.Report.Transactions
	r.Report.Keys += o.Report.Keys
	r.Report.Tries += o.Report.Tries
	r.Report.Answers += o.Report.Answers
	r.Report.Repeated += o.Report.Repeated
	r.Report.Refused += o.Report.Refused
	r.Report.Events += o.Report.Events
	r.Report.Deliveries += o.Report.Deliveries
	r.Report.Duplicates += o.Report.Duplicates
	r.Report.Explained += o.Report.Explained
	for kind, n := range o.Done {
		r.Done[kind] += n
	}
}
