package model

import (
	"fmt"
	"strings"
)

// Record is an event of a trace of a single row. LockedBy is the name of the lease that the store
// saw; Lease of the event is not used. Node is 0 for the process that wrote the row, 1 for the
// other process.
type Record struct {
	Event
	LockedBy string
}

func (r Record) String() string {
	text := r.Event.String()
	if r.LockedBy != "" {
		text = strings.NewReplacer("without a lease", "under lease "+r.LockedBy, "lease 0", "lease "+r.LockedBy).Replace(text)
	}
	return text
}

// maxLeases is how many leases a trace may have.
const maxLeases = 48

// replay is a state that a trace may have led to, and the names of the leases in that state.
type replay struct {
	state State
	named [maxLeases]Name
}

// Replay goes through a trace of a single row with all the states of the model that are consistent
// with the trace. Steps that a trace does not show may happen between the events of the trace.
// Replay returns how many states are left, or the first event that the model does not allow.
func (m Leases) Replay(trace []Record) (states int, err error) {
	m.Faults, m.Replays, m.Returns, m.replaying = 255, 255, true, true
	numbers := map[string]int{}
	possible := map[replay]bool{{}: true}
	for at, r := range trace {
		lease := -1
		if r.LockedBy != "" {
			number, known := numbers[r.LockedBy]
			if !known {
				number = len(numbers)
				numbers[r.LockedBy] = number
			}
			if lease = number; lease == maxLeases {
				return 0, fmt.Errorf("event %d: more than %d leases", at+1, maxLeases)
			}
		}
		m.settle(possible)
		next := map[replay]bool{}
		for p := range possible {
			m.next(p.state, func(e Event, _ bool, to State) {
				if named, ok := p.shows(e, r.Event, lease); ok {
					to.Faults = 0
					next[replay{to, named}] = true
				}
			})
		}
		if len(next) == 0 {
			return 0, fmt.Errorf("event %d of %d is not possible: %s", at+1, len(trace), r)
		}
		possible = next
	}
	return len(possible), nil
}

// settle adds the states that are reached by steps that a trace does not show.
func (m Leases) settle(possible map[replay]bool) {
	var queue []replay
	for p := range possible {
		queue = append(queue, p)
	}
	for len(queue) > 0 {
		p := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		m.next(p.state, func(e Event, _ bool, to State) {
			if after := (replay{to, p.named}); e.Kind == Internal && !possible[after] {
				possible[after] = true
				queue = append(queue, after)
			}
		})
	}
}

// shows reports whether a step of the model is the event of the trace, and returns the names of the
// leases after the step.
func (p replay) shows(e, seen Event, lease int) (named [maxLeases]Name, ok bool) {
	named = p.named
	if e.Kind != seen.Kind || e.Node != seen.Node && e.Kind != Expired {
		return named, false
	}
	switch e.Kind {
	case Claimed:
		ok = e.Attempts == seen.Attempts && e.Late == seen.Late
	case Began:
		return named, e.Attempts == seen.Attempts
	case Ended:
		return named, e.Outcome == seen.Outcome
	case Marked:
		ok = e.Outcome == seen.Outcome && e.Changed == seen.Changed && e.Late == seen.Late
	case Released:
		ok = e.Changed == seen.Changed && e.Late == seen.Late
	default:
		ok = true
	}
	if lease < 0 {
		return named, ok && e.Lease == 0
	}
	switch named[lease] {
	case e.Lease:
		return named, ok && e.Lease != 0
	case 0:
		for _, other := range named {
			if other == e.Lease {
				return named, false
			}
		}
		named[lease] = e.Lease
		return named, ok && e.Lease != 0
	default:
		return named, false
	}
}
