package checker

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Report is a summary of a history.
type Report struct {
	Violations []Violation

	// Transactions are the transactions that wrote events. Committed transactions stand; Unknown
	// transactions have an outcome that the writer does not know.
	Transactions, Committed, Unknown int
	// Events are the events that were written. Standing events are the events of transactions that
	// stand.
	Events, Standing int
	// Deliveries are calls of listeners. Succeeded and Failed are the calls that ended so.
	// Interrupted calls have no end, because the process died.
	Deliveries, Succeeded, Failed, Interrupted int
	// Duplicates are deliveries after a success or beside another delivery to the same listener.
	// Explained are the duplicates that a fault explains.
	Duplicates, Explained int
	// ChanceExplained is how likely a fault would explain a duplicate that has nothing to do with
	// the fault: the share of random pairs of a time and a process that a fault of the run
	// overlaps. The nearer to 1, the less the rules "explained" and "one-at-a-time" can find.
	ChanceExplained float64
	// Faults are the faults of the run, apart from shutdowns, and Span is the time of the run.
	Faults int
	Span   time.Duration
	// Done and Dead are the rows at the end. Effects are the effects that happen exactly once.
	Done, Dead, Effects int
	// Keys are the keys of requests, and Tries how often clients sent a request. Answers are the tries
	// that got an answer: Successes say that the request was done, Repeated of them with the header
	// Idempotent-Replayed, and Refused are the answers 409 and 422.
	Keys, Tries, Answers, Successes, Repeated, Refused int
	// KeptOut are the events of standing transactions that a unique key kept out.
	KeptOut int
	// Changed are the changes of events that waited, by transactions that stand, and Cancelled the changes
	// that cancelled an event.
	Changed, Cancelled int
	// Replayed and Deleted are dead letters that operators replayed and deleted.
	Replayed, Deleted int
}

// Violation is a place where a history breaks a rule. Event or Key may be empty.
type Violation struct {
	Rule             Rule
	Event, Key, Text string
}

func (v Violation) String() string {
	of := ""
	if v.Event != "" {
		of = ", event " + v.Event
	}
	if v.Key != "" {
		of += ", key " + v.Key
	}
	return fmt.Sprintf("%s%s: %s", v.Rule, of, v.Text)
}

// shown is how many violations of a rule String prints.
const shown = 5

// String is a summary for people: the figures, and the first violations of each rule.
func (r Report) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "%d transactions (%d stand, %d unknown to their writers), %d events (%d stand), in %v with %d faults\n",
		r.Transactions, r.Committed, r.Unknown, r.Events, r.Standing, r.Span.Round(time.Millisecond), r.Faults)
	fmt.Fprintf(&s, "%d deliveries: %d succeeded, %d failed, %d were interrupted\n", r.Deliveries, r.Succeeded, r.Failed, r.Interrupted)
	fmt.Fprintf(&s, "%d duplicates, %d explained by faults (a random delivery would be with a chance of %.0f %%)\n",
		r.Duplicates, r.Explained, 100*r.ChanceExplained)
	fmt.Fprintf(&s, "%d rows DONE, %d DEAD, %d effects that happen once, %d replayed, %d deleted\n", r.Done, r.Dead, r.Effects, r.Replayed, r.Deleted)
	if r.KeptOut > 0 {
		fmt.Fprintf(&s, "%d events kept out by their unique keys\n", r.KeptOut)
	}
	if r.Changed > 0 {
		fmt.Fprintf(&s, "%d changes of events that waited, %d of them cancelled\n", r.Changed, r.Cancelled)
	}
	if r.Keys > 0 {
		fmt.Fprintf(&s, "%d keys of requests, sent %d times; %d answers: %d successes, %d of them repeated, %d refusals\n",
			r.Keys, r.Tries, r.Answers, r.Successes, r.Repeated, r.Refused)
	}
	if len(r.Violations) == 0 {
		fmt.Fprintf(&s, "all %d rules hold", len(Rules))
		return s.String()
	}
	fmt.Fprintf(&s, "%d violations:", len(r.Violations))
	for _, rule := range r.Broken() {
		r.printBroken(&s, rule)
	}
	return s.String()
}

func (r Report) printBroken(s *strings.Builder, rule Rule) {
	n := 0
	for _, v := range r.Violations {
		if v.Rule != rule {
			continue
		}
		if n++; n <= shown {
			fmt.Fprintf(s, "\n  %v", v)
		}
	}
	if n > shown {
		fmt.Fprintf(s, "\n  %s: and %d more", rule, n-shown)
	}
}

// Broken are the rules that are broken, in the order of [Rules].
func (r Report) Broken() []Rule {
	var broken []Rule
	for _, rule := range Rules {
		if slices.ContainsFunc(r.Violations, func(v Violation) bool { return v.Rule == rule.Rule }) {
			broken = append(broken, rule.Rule)
		}
	}
	return broken
}
