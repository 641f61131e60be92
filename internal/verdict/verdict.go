// Package verdict says in one sentence whether an outbox is well, and if not, why. The dashboard, the
// health check, the admin handlers and the command line give the same verdict.
package verdict

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// Level says how bad a verdict is.
type Level string

// The levels.
const (
	Well      Level = "well"
	Attention Level = "attention" // events are delivered in time, and an operator has something to do
	Late      Level = "late"      // events wait for longer than they may
)

// Subject is what a reason is about.
type Subject string

// The subjects.
const (
	Backlog Subject = "backlog"
	Nodes   Subject = "nodes"
	Paused  Subject = "paused"
	Unheard Subject = "unheard"
	Dead    Subject = "dead"
	Replays Subject = "replays"
)

// DefaultMaxDueAge is how long an event may be due until the outbox is late. The alert
// OutboxOldestDueTooOld begins there too.
const DefaultMaxDueAge = 5 * time.Minute

// MaxReplayProgressAge is how long a replay of delivered events may run without progress. The alert
// OutboxReplayStuck begins there too.
const MaxReplayProgressAge = 10 * time.Minute

// Verdict says whether an outbox is well.
type Verdict struct {
	Level Level `json:"level"`
	// Summary is the sentence of Head and Reasons.
	Summary string `json:"summary"`
	// Head is the beginning of the sentence, and Reasons are the rest of it.
	Head    string   `json:"-"`
	Reasons []Reason `json:"reasons"`
}

// Reason is a part of the sentence.
type Reason struct {
	Subject Subject `json:"subject"`
	Text    string  `json:"text"`
	// At is the time in Text; zero: Text has no time.
	At time.Time `json:"-"`
	// EventID is the event that is the cause; empty: no single event.
	EventID string `json:"-"`
}

// Facts are what a verdict is about.
type Facts struct {
	Stats      outbox.Stats
	Throughput outbox.Throughput
	Nodes      []outbox.Node
	// MaxDueAge is how long an event may be due whose kind has no MaxDueAge; zero:
	// DefaultMaxDueAge.
	MaxDueAge time.Duration
	// Oldest says why the oldest due event waits, if the outbox is late, and nil otherwise.
	Oldest *Reason
}

// Read reads the facts.
func Read(ctx context.Context, ob *outbox.Outbox, maxDueAge time.Duration) (f Facts, err error) {
	f.MaxDueAge = maxDueAge
	if f.Stats, err = ob.Stats(ctx); err != nil {
		return f, err
	}
	if f.Throughput, err = ob.Throughput(ctx); err != nil {
		return f, err
	}
	if f.Nodes, err = ob.Nodes(ctx); err != nil || f.Stats.OldestDueAge <= f.limit() || len(f.readers()) > 0 {
		return f, err
	}
	f.Oldest, err = oldest(ctx, ob, f.Stats.Paused, time.Now())
	return f, err
}

// limit is how long an event may be due whose kind has no MaxDueAge.
func (f *Facts) limit() time.Duration { return cmp.Or(f.MaxDueAge, DefaultMaxDueAge) }

// Verdict is the verdict of the facts.
func (f *Facts) Verdict() Verdict {
	v := Verdict{Level: Well, Reasons: f.reasons()}
	age, kinds := f.late()
	switch {
	case age > 0:
		v.Level, v.Head = Late, "Late by "+Span(age)
		if f.Oldest != nil {
			kinds = append(kinds, *f.Oldest)
		}
		v.Reasons = append(kinds, v.Reasons...)
		if len(v.Reasons) == 0 {
			v.Reasons = []Reason{{Subject: Backlog, Text: events(f.Stats.Due) + " due, and deliveries go on too slowly or fail"}}
		}
	case len(v.Reasons) > 0:
		v.Level, v.Head = Attention, "In time, but look"
	default:
		v.Head, v.Reasons = "Well", []Reason{{Subject: Backlog, Text: f.work()}}
	}
	v.Summary = v.Head + ": " + join(v.Reasons) + "."
	return v
}

// maxKinds is how many kinds that are late a verdict names.
const maxKinds = 3

// late returns how long the oldest late event has been due, zero if no event is late, and the kinds
// that are later than their MaxDueAge.
func (f *Facts) late() (age time.Duration, kinds []Reason) {
	limit := f.limit()
	add := func(text string) { kinds = append(kinds, Reason{Subject: Backlog, Text: text}) }
	for i, k := range f.Stats.Late {
		age = max(age, k.OldestDueAge)
		if i < maxKinds {
			add(fmt.Sprintf("%s of %s due for more than %s", eventsOf(k.Events), k.Kind, Span(k.MaxDueAge)))
		}
	}
	if more := len(f.Stats.Late) - maxKinds; more > 0 {
		add(number(int64(more), "more kind", "more kinds") + " late")
	}
	for _, n := range f.readers() {
		if n.SeenAt.Sub(published(n)) > limit {
			kinds = append(kinds, Reason{Subject: Nodes, Text: cut(n.Owner) + " has not published the whole log since " + clock(published(n)), At: published(n)})
		}
	}
	if f.Stats.OldestDueAge > limit {
		age = max(age, f.Stats.OldestDueAge)
		if len(kinds) > 0 && len(f.readers()) == 0 {
			add("other events due for " + Span(f.Stats.OldestDueAge))
		}
	}
	return age, kinds
}

// readers are the live processes that publish the rows from the database's log.
func (f *Facts) readers() (list []*outbox.Node) {
	for i := range f.Nodes {
		if n := &f.Nodes[i]; n.Live && n.Log != nil {
			list = append(list, n)
		}
	}
	return list
}

// published is when a reader of the log last had published the whole log. A reader that never had counts
// from its start.
func published(n *outbox.Node) time.Time {
	if n.LastPoll.IsZero() {
		return n.Started
	}
	return n.LastPoll
}

// join writes the reasons with commas.
func join(reasons []Reason) string {
	texts := make([]string, len(reasons))
	for i, r := range reasons {
		texts[i] = r.Text
	}
	return strings.Join(texts, ", ")
}

// work says what an outbox that is well does.
func (f *Facts) work() string {
	waits := "no event is due"
	switch readers := f.readers(); {
	case len(readers) > 0:
		waits = cut(readers[0].Owner) + " publishes the log"
		if behind := readers[0].Log.Behind; behind >= 0 {
			waits += ", and is " + Bytes(behind) + " behind"
		}
	case f.Stats.OldestDueAge > 0:
		waits = "the oldest due event has waited for " + Span(f.Stats.OldestDueAge)
	case f.Stats.Due > 0:
		waits = events(f.Stats.Due) + " due"
	}
	if f.Throughput.Done == 0 {
		return waits
	}
	return fmt.Sprintf("%s delivered in the last minute, %s", eventsOf(f.Throughput.Done), waits)
}

// reasons are what an operator has to look at, the worst first.
func (f *Facts) reasons() (reasons []Reason) {
	add := func(s Subject, text string) { reasons = append(reasons, Reason{Subject: s, Text: text}) }
	live, dead, since := f.nodes()
	switch {
	case live == 0 && f.delivers() && dead == 0:
		add(Nodes, "no process delivers")
	case live == 0 && dead > 0:
		add(Nodes, fmt.Sprintf("no process delivers since %s, when %s", clock(since), f.last(since)))
	case dead > 0:
		add(Nodes, fmt.Sprintf("%d of %d processes not seen since %s", dead, live+dead, clock(since)))
	}
	if len(reasons) > 0 {
		reasons[0].At = since
	}
	for _, n := range f.readers() {
		if left := n.Log.Left; left >= 0 && left < n.Log.Kept {
			add(Nodes, "the server drops log that "+cut(n.Owner)+" has not published when it has grown by "+Bytes(left))
		}
	}
	var kinds, keys []outbox.Pause
	for i := range f.Stats.Paused {
		if f.Stats.Paused[i].AggregateID == "" {
			kinds = append(kinds, f.Stats.Paused[i])
		} else {
			keys = append(keys, f.Stats.Paused[i])
		}
	}
	if kinds := NoListener(f.Nodes); len(kinds) > 1 || len(kinds) == 1 && !f.Oldest.isOf(kinds[0]) {
		add(Unheard, kindOr(kinds[0], len(kinds))+" without a listener in any process")
	}
	if len(kinds) > 0 {
		text := kindOr(kinds[0].Kind.String(), len(kinds)) + " paused" + byListeners(kinds)
		if f.Stats.DuePaused > 0 {
			text += " (" + eventsOf(f.Stats.DuePaused) + " due)"
		}
		add(Paused, text)
	}
	if len(keys) > 0 {
		add(Paused, number(int64(len(keys)), "key", "keys")+" paused"+byListeners(keys))
	}
	if age := f.Stats.ReplayProgressAge; age > MaxReplayProgressAge {
		add(Replays, "a replay of delivered events has made no progress for "+Span(age))
	}
	if f.Stats.Dead > 0 {
		add(Dead, events(f.Stats.Dead)+" dead")
	}
	return reasons
}

// kindOr is the name of the kind if there is only one kind, and otherwise the number of kinds.
func kindOr(kind string, n int) string {
	if n > 1 {
		return number(int64(n), "kind", "kinds")
	}
	return cut(kind)
}

// cut shortens a name, so that a verdict remains a sentence.
func cut(name string) string { return cutAt(name, 80) }

func cutAt(text string, most int) string {
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return text
}

// isOf reports whether the reason says already that no process has a listener for a kind.
func (r *Reason) isOf(kind string) bool {
	return r != nil && strings.Contains(r.Text, " of "+kind+", waits") && strings.Contains(r.Text, noListener)
}

// delivers reports whether a process is expected to deliver: events are due, and the table is not read
// by something else than the outbox, as in [outbox.WriterOnly].
func (f *Facts) delivers() bool {
	onlyWrites := len(f.Nodes) > 0
	for i := range f.Nodes {
		onlyWrites = onlyWrites && f.Nodes[i].Mode != "" && !f.Nodes[i].Delivers()
	}
	return f.Stats.Due > 0 && !onlyWrites
}

// nodes counts the processes that deliver and that died, and says when the first of these was last seen,
// or the last one if no process lives.
func (f *Facts) nodes() (live, dead int, since time.Time) {
	for i := range f.Nodes {
		n := &f.Nodes[i]
		switch {
		case n.Live && (n.Delivers() || n.Problem != ""):
			live++
		case !n.Live && n.Delivers() && !n.SeenAt.IsZero():
			dead++
		}
	}
	for i := range f.Nodes {
		n := &f.Nodes[i]
		if n.Live || !n.Delivers() || n.SeenAt.IsZero() {
			continue
		}
		if since.IsZero() || n.SeenAt.Before(since) == (live > 0) {
			since = n.SeenAt
		}
	}
	return live, dead, since
}

// last names the process that was last seen at a time, and says when it polled, if that was long before.
func (f *Facts) last(seen time.Time) string {
	for i := range f.Nodes {
		n := &f.Nodes[i]
		if n.Live || !n.Delivers() || !n.SeenAt.Equal(seen) {
			continue
		}
		text := cut(n.Owner) + " was last seen"
		if polled := n.LastPoll; !polled.IsZero() && seen.Sub(polled) > pollAge {
			text += " (it last polled at " + clock(polled) + ")"
		}
		return text
	}
	return "a process was last seen"
}

// NoListener are the kinds of events that came to a live process and have no listener in any live
// process, as texts in their order.
func NoListener(nodes []outbox.Node) []string {
	left, known := map[string]bool{}, map[string]bool{}
	for i := range nodes {
		if !nodes[i].Live {
			continue
		}
		for _, kind := range nodes[i].Unheard {
			left[kind.String()] = true
		}
		for _, kind := range nodes[i].Kinds {
			known[kind.String()] = true
		}
	}
	maps.DeleteFunc(left, func(kind string, _ bool) bool { return known[kind] })
	return slices.Sorted(maps.Keys(left))
}

// Automatic counts the pauses that listeners asked for.
func Automatic(list []outbox.Pause) (n int) {
	for i := range list {
		if list[i].Automatic {
			n++
		}
	}
	return n
}

func byListeners(list []outbox.Pause) string {
	switch n := Automatic(list); n {
	case 0:
		return ""
	case len(list):
		return " by listeners"
	default:
		return fmt.Sprintf(", %d of them by listeners", n)
	}
}

// events writes a number of events with a verb.
func events(n int64) string {
	if n == 1 {
		return "1 event is"
	}
	return eventsOf(n) + " are"
}

func eventsOf(n int64) string {
	text := number(n, "event", "events")
	if n >= outbox.StatsLimit {
		text = strings.Replace(text, " events", " or more events", 1)
	}
	return text
}

// number writes a number, with commas between thousands, and the noun.
func number(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text + " " + many
}

// Bytes writes a number of bytes with a decimal unit.
func Bytes(n int64) string {
	units := []string{"bytes", "kB", "MB", "GB", "TB"}
	size, unit := float64(n), 0
	for size >= 1000 && unit < len(units)-1 {
		size, unit = size/1000, unit+1
	}
	return fmt.Sprintf("%.3g %s", size, units[unit])
}

func clock(t time.Time) string { return t.UTC().Format("15:04 UTC") }

// Span writes a duration, from a minute on with two units.
func Span(d time.Duration) string {
	switch {
	case d < 100*time.Millisecond:
		return fmt.Sprintf("%.3g ms", float64(d)/float64(time.Millisecond))
	case d < time.Second:
		return fmt.Sprintf("%.2g s", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%g s", d.Round(100*time.Millisecond).Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%d min %d s", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
	default:
		return fmt.Sprintf("%d days", int(d.Hours()/24))
	}
}
