package model

import "fmt"

// Runs is the model of OrderedByKey: one key, two processes, and events that are delivered one at a
// time, in order. Two events are there from the start. The event that goes before both comes at any
// time: it was DEAD and is replayed, or its transaction commits late. Each comment names the file of
// package outbox, or of its store, that a step stands for.
//
// There are no faults and no failures; the model of the leases has them.
type Runs struct {
	Broken Mutation
}

// keyEvents is how many events the key has; event 0 goes before the others.
const keyEvents = 3

// Events is a set of events; bit 0 is the event that goes before the others.
type Events uint8

func (e Events) has(event int) bool { return e&(1<<event) != 0 }

// first is the first of the events; keyEvents when there is none.
func (e Events) first() int {
	for event := range keyEvents {
		if e.has(event) {
			return event
		}
	}
	return keyEvents
}

// Reader is the memory of a process, as far as it concerns the key.
type Reader struct {
	Run     Events // that was read
	Hand    Events // claimed, and not delivered yet
	Storing Events // delivered; the outcome is not stored
	Checked bool   // the run may be delivered
	Running bool   // the listener has the first event in hand
}

// KeyState is all that the model knows.
type KeyState struct {
	Pending Events    // rows that are NEW or RETRY
	Leased  [2]Events // rows, by process
	Late    bool      // event 0 has come
	Readers [2]Reader
}

// KeyStep is a step of the model.
type KeyStep struct {
	Process int
	What    string
	Event   int
}

func (s KeyStep) String() string {
	switch s.What {
	case comes:
		return "event 0 " + comes
	case beginsNext, endsNext, storesNext:
		return fmt.Sprintf("process %d %s event %d", s.Process, s.What, s.Event)
	default:
		return fmt.Sprintf("process %d %s", s.Process, s.What)
	}
}

// The steps of runs.
const (
	comes      = "is replayed, or committed late"
	readsRun   = "reads the run of the key"
	claimsRun  = "claims the rows of the run"
	checksRun  = "looks whether the run begins the key, and it does"
	returnsRun = "looks whether the run begins the key, and gives the run back"
	beginsNext = "begins the listener of"
	endsNext   = "ends the listener of"
	storesNext = "stores done for"
)

// The ways to break the model of runs.
const (
	RunsAreNotChecked   Mutation = "a claimed run is delivered without a look at the key"
	RunsAreCheckedEarly Mutation = "a process looks at the key before it claims"
	LeasesAreOverlooked Mutation = "a read does not look at the leases behind the first row"
)

// OneAtATime is the rule of runs.
const OneAtATime = "one at a time"

// Model makes the model for the checker.
func (m Runs) Model() Model[KeyState, KeyStep] {
	return Model[KeyState, KeyStep]{
		Start: KeyState{Pending: 0b110}, Next: m.next,
		Twin: func(s KeyState) KeyState {
			s.Readers[0], s.Readers[1] = s.Readers[1], s.Readers[0]
			s.Leased[0], s.Leased[1] = s.Leased[1], s.Leased[0]
			return s
		},
		Settled: func(s KeyState) bool { return s.Pending == 0 && s.Late },
		Rules: []Rule[KeyState, KeyStep]{
			{OneAtATime, "Two listeners do not have events of one key at the same time.", func(_ KeyState, _ KeyStep, to KeyState) bool {
				return !to.Readers[0].Running || !to.Readers[1].Running
			}},
		},
	}
}

func (m Runs) next(from KeyState, yield func(KeyStep, bool, KeyState)) {
	if !from.Late {
		s := from
		s.Late, s.Pending = true, s.Pending|1
		yield(KeyStep{What: comes}, false, s)
	}
	for p := range from.Readers {
		take := func(what string, event int, change func(s *KeyState, r *Reader)) {
			s := from
			change(&s, &s.Readers[p])
			yield(KeyStep{p, what, event}, false, s)
		}
		m.read(from, p, take)
		m.deliver(from, p, take)
	}
}

type takeStep func(what string, event int, change func(s *KeyState, r *Reader))

// read is the poller's part (outbox/poller_runs.go, sqlstore/runs.go).
func (m Runs) read(from KeyState, p int, take takeStep) {
	r := from.Readers[p]
	leased := from.Leased[0] | from.Leased[1]
	if m.Broken == LeasesAreOverlooked {
		leased &= 1 << from.Pending.first()
	}
	switch {
	case r == Reader{} && from.Pending != 0 && leased == 0:
		take(readsRun, 0, func(_ *KeyState, r *Reader) { r.Run = from.Pending })
	case r.Run != 0 && r.Hand == 0 && m.Broken == RunsAreCheckedEarly && !r.Checked:
		if r.Run.first() == from.Pending.first() {
			take(checksRun, 0, func(_ *KeyState, r *Reader) { r.Checked = true })
		} else {
			take(returnsRun, 0, func(_ *KeyState, r *Reader) { *r = Reader{} })
		}
	case r.Run != 0 && r.Hand == 0:
		take(claimsRun, 0, func(s *KeyState, r *Reader) { m.claim(s, p, r) })
	case r.Hand != 0 && !r.Checked:
		if r.Hand.first() == from.Pending.first() {
			take(checksRun, 0, func(_ *KeyState, r *Reader) { r.Checked = true })
		} else {
			take(returnsRun, 0, func(s *KeyState, r *Reader) { *r, s.Leased[p] = Reader{}, 0 })
		}
	}
}

// claim leases the free rows of the run, and keeps the rows from the first on, without a gap; the
// other leases are given back.
func (m Runs) claim(s *KeyState, p int, r *Reader) {
	free := s.Pending &^ (s.Leased[0] | s.Leased[1])
	for event := range keyEvents {
		if r.Run.has(event) && !free.has(event) {
			break
		}
		r.Hand |= r.Run & (1 << event)
	}
	s.Leased[p] |= r.Hand
	r.Checked = r.Checked || m.Broken == RunsAreNotChecked
	if r.Run = 0; r.Hand == 0 {
		*r = Reader{}
	}
}

// deliver is the worker of the run, and the completer, which stores outcomes in order
// (outbox/bykey.go, completer.go).
func (m Runs) deliver(from KeyState, p int, take takeStep) {
	r := from.Readers[p]
	next := r.Hand.first()
	switch {
	case r.Running:
		take(endsNext, next, func(_ *KeyState, r *Reader) {
			r.Running, r.Hand, r.Storing = false, r.Hand&^(1<<next), r.Storing|1<<next
		})
	case r.Checked && r.Hand != 0:
		take(beginsNext, next, func(_ *KeyState, r *Reader) { r.Running = true })
	}
	if r.Storing == 0 {
		return
	}
	stored := r.Storing.first()
	take(storesNext, stored, func(s *KeyState, r *Reader) {
		gone := Events(1 << stored)
		s.Pending, s.Leased[p], r.Storing = s.Pending&^gone, s.Leased[p]&^gone, r.Storing&^gone
		if r.Hand == 0 && r.Storing == 0 {
			*r = Reader{}
		}
	})
}
