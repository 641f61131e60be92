package tablestats

import (
	"slices"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// Figure is a figure of the table, and the index of the figure's description.
type Figure int

// The figures.
const (
	Pending Figure = iota
	Due
	Delayed
	Dead
	DuePaused
	OldestDueAge
	LastPoll
	PollInterval
	Paused
	PausedKeys
	OldestPauseAge
	ReplayProgressAge
	Up
	ReadAt
	ReadErrors
	Figures // how many there are
)

// The units, in OpenTelemetry's notation. A figure without a unit is a plain number.
const (
	Events  = "{event}"
	Errors  = "{error}"
	Kinds   = "{kind}"
	Keys    = "{key}"
	Seconds = "s"
)

// Description is the name and the meaning of a figure. The figure with the unit [Errors] is a
// counter, the other figures are gauges.
type Description struct {
	Name string // with dots, without a prefix
	Unit string
	Help string
}

var descriptions = [Figures]Description{
	Pending:           {"events.pending", Events, "Events in the table that are not yet delivered, due or delayed; each count stops at 100,000."},
	Due:               {"events.due", Events, "Events in the table that are due now."},
	Delayed:           {"events.delayed", Events, "Events in the table that are due later: delayed, deferred or to be retried."},
	Dead:              {"events.dead", Events, "DEAD events in the table."},
	DuePaused:         {"events.due.paused", Events, "Due events whose kind is paused, among the first 100,000 due events."},
	OldestDueAge:      {"oldest.due.age", Seconds, "How long the oldest due event has been due whose kind is not paused and has no MaxDueAge; 0 when there is none."},
	LastPoll:          {"last.poll.timestamp", Seconds, "When the poller last read the table or found its queue full; 0 before the first time."},
	PollInterval:      {"poll.interval", Seconds, "How often the poller reads an idle table."},
	Paused:            {"kinds.paused", Kinds, "Kinds of events that are paused."},
	PausedKeys:        {"keys.paused", Keys, "Keys of kinds of events that are paused; at most about 1,000."},
	OldestPauseAge:    {"oldest.pause.age", Seconds, "How long the kind has been paused that was paused first; 0 when none is."},
	ReplayProgressAge: {"replay.progress.age", Seconds, "How long ago the running replay of delivered events made progress that has made no progress for the longest; 0 when no replay runs."},
	Up:                {"table.up", "", "Whether the last read of the table for these metrics succeeded."},
	ReadAt:            {"table.read.timestamp", Seconds, "When the table was read for these metrics."},
	ReadErrors:        {"table.read.errors", Errors, "Reads of the table for these metrics that failed."},
}

// Describe returns the descriptions, each at the index of its figure.
func Describe() [Figures]Description { return descriptions }

// Each calls do with each known figure. The figures of the table's contents are unknown if the
// table could not be read, or not recently; the figures of the poller are unknown in a mode without
// a poller.
func (v Values) Each(do func(f Figure, value float64)) {
	do(ReadErrors, float64(v.Failed))
	if v.Up {
		do(Up, 1)
	} else {
		do(Up, 0)
	}
	if v.Stats == nil {
		return
	}
	do(ReadAt, timestamp(v.At))
	do(Pending, float64(v.Stats.Pending))
	do(Due, float64(v.Stats.Due))
	do(Delayed, float64(v.Stats.Delayed))
	do(Dead, float64(v.Stats.Dead))
	do(DuePaused, float64(v.Stats.DuePaused))
	do(OldestDueAge, v.Stats.OldestDueAge.Seconds())
	kinds := pausedKinds(v)
	do(Paused, float64(kinds))
	do(PausedKeys, float64(len(v.Stats.Paused)-kinds))
	do(OldestPauseAge, oldestPause(v).Seconds())
	do(ReplayProgressAge, v.Stats.ReplayProgressAge.Seconds())
	if v.Stats.PollInterval > 0 { // the mode has a poller
		do(LastPoll, timestamp(v.Stats.LastPoll))
		do(PollInterval, v.Stats.PollInterval.Seconds())
	}
}

// Share describes the share of this process in limits of all processes.
var Share = Description{"fleetwide.share", "", "The share of this process in the limits of a kind of event that all processes have together, from 0 to 1."}

// EachShare calls do with each known share, which is from 0 to 1.
func (v Values) EachShare(do func(kind outbox.EventKind, share float64)) {
	if v.Stats == nil {
		return
	}
	for _, s := range v.Stats.Shares {
		do(s.Kind, float64(s.Parts)/float64(max(s.Of, 1)))
	}
}

// LateAge describes how late a kind with a MaxDueAge is.
var LateAge = Description{"kind.late.age", Seconds, "How long the oldest event of a kind has been due, if this is longer than the MaxDueAge of the kind; absent while the kind is not late."}

// EachLate calls do with each kind that is later than the MaxDueAge of the kind.
func (v Values) EachLate(do func(kind outbox.EventKind, seconds float64)) {
	if v.Stats == nil {
		return
	}
	for _, late := range v.Stats.Late {
		do(late.Kind, late.OldestDueAge.Seconds())
	}
}

// MaxPaused is how many paused kinds have an age of their own.
const MaxPaused = 100

// PauseAge describes how long a kind has been paused.
var PauseAge = Description{"kind.pause.age", Seconds, "How long a kind of event has been paused, for the 100 kinds that were paused first; absent while the kind is not paused."}

// EachPause calls do with the kinds that were paused first, MaxPaused at most, and the time for which each
// had been paused when the table was read.
func (v Values) EachPause(do func(kind outbox.EventKind, seconds float64)) {
	if v.Stats == nil {
		return
	}
	kinds := slices.DeleteFunc(slices.Clone(v.Stats.Paused), func(p outbox.Pause) bool { return p.AggregateID != "" })
	slices.SortStableFunc(kinds, func(a, b outbox.Pause) int { return a.Since.Compare(b.Since) })
	for _, p := range kinds[:min(len(kinds), MaxPaused)] {
		do(p.Kind, max(v.At.Sub(p.Since), 0).Seconds())
	}
}

// oldestPause is how long the first of the paused kinds had been paused when the table was
// read.
func oldestPause(v Values) (age time.Duration) {
	for _, pause := range v.Stats.Paused {
		if pause.AggregateID == "" {
			age = max(age, v.At.Sub(pause.Since))
		}
	}
	return age
}

// pausedKinds is how many kinds are paused.
func pausedKinds(v Values) (n int) {
	for _, pause := range v.Stats.Paused {
		if pause.AggregateID == "" {
			n++
		}
	}
	return n
}

// timestamp is a time as seconds since 1970; 0 for the zero time.
func timestamp(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}
