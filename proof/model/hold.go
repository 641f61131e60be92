package model

import "fmt"

// Holds is the model of SingleNode's hold on the table (outbox/internal/hold): two processes with a
// single worker each, two events, no leases. The first event is due from the start. Each comment
// names the file of package outbox that a step stands for.
//
// By the process's own clock, a hold ends before it ends in the database, because the process
// counts from before the statement. So when the hold expires, the process no longer holds the
// table. A process that was stopped notices the expiry at the next look at the hold, but not
// between the look and the listener.
type Holds struct {
	Faults uint8
	Broken Mutation
}

// Job is an event in the hands of a process.
type Job uint8

const (
	noJob   Job = iota
	waiting     // in a queue
	looked      // a worker has looked at the hold, the listener comes next
	inListener
	succeeded // the outcome is not stored
	failed    // the same
)

// Process is the memory of a process.
type Process struct {
	Holds bool // by the process's own clock
	Jobs  [2]Job
	Stale [2]bool // the event was taken in hand under an earlier term
	// Lost is a note of the checker: the hold ended after the worker looked.
	Lost [2]bool
}

// HoldState is everything that the model knows.
type HoldState struct {
	Owner     int8 // the holder of the table, according to the database; -1: no process
	Expired   bool
	Processes [2]Process
	Done      [2]bool // the rows
	Delivered [2]bool // a listener succeeded; a note of the checker
	Faults    uint8
}

// HoldStep is a step of the model.
type HoldStep struct {
	Process int
	Event   int
	What    string
}

func (s HoldStep) String() string {
	if s.Event < 0 {
		return fmt.Sprintf("process %d %s", s.Process, s.What)
	}
	return fmt.Sprintf("process %d %s event %d", s.Process, s.What, s.Event)
}

// The steps of the hold, in words.
const (
	takes      = "takes the hold"
	takesLost  = "takes the hold, and gets no answer"
	lapses     = "finds its hold lapsed by its own clock"
	expires    = "held the table until now: the hold expires"
	closes     = "gives the hold up"
	dies       = "dies and starts again"
	reads      = "reads"
	looks      = "looks at its hold before it delivers"
	letsGo     = "lets go of"
	begins     = "begins the listener of"
	ends       = "ends the listener with success, of"
	fails      = "ends the listener with an error, of"
	storesDone = "stores done for"
	storesFail = "stores a retry for"
	storeLost  = "stores an outcome and gets no answer, for"
)

// Model makes the model for the checker.
func (m Holds) Model() Model[HoldState, HoldStep] {
	return Model[HoldState, HoldStep]{
		Start: HoldState{Owner: -1}, Next: m.next, Rules: m.rules(),
		Twin: func(s HoldState) HoldState {
			s.Processes[0], s.Processes[1] = s.Processes[1], s.Processes[0]
			if s.Owner >= 0 {
				s.Owner = 1 - s.Owner
			}
			return s
		},
		Settled: func(s HoldState) bool { return s.Done[0] && s.Done[1] },
	}
}

type holdSteps struct {
	Holds
	from  HoldState
	yield func(HoldStep, bool, HoldState)
}

func (x *holdSteps) take(p, event int, what string, change func(s *HoldState, p *Process)) {
	s := x.from
	change(&s, &s.Processes[p])
	x.yield(HoldStep{p, event, what}, false, s)
}

func (x *holdSteps) fault(p, event int, what string, change func(s *HoldState, p *Process)) {
	if x.from.Faults >= x.Faults {
		return
	}
	s := x.from
	s.Faults++
	change(&s, &s.Processes[p])
	x.yield(HoldStep{p, event, what}, true, s)
}

func (m Holds) next(from HoldState, yield func(HoldStep, bool, HoldState)) {
	x := &holdSteps{m, from, yield}
	for p := range from.Processes {
		x.hold(p)
		x.end(p)
		for event := range from.Done {
			x.read(p, event)
			x.deliver(p, event)
			x.store(p, event)
		}
	}
}

// hold takes or renews the hold: Try in outbox/internal/hold, Hold in outbox/hold.go.
func (x *holdSteps) hold(p int) {
	s := x.from
	mine, free := s.Owner == int8(p), s.Owner < 0 || s.Expired
	if !mine && !free && x.Broken != HoldWithoutExpiry {
		return
	}
	own := func(s *HoldState) { s.Owner, s.Expired = int8(p), false }
	x.take(p, -1, takes, func(s *HoldState, p *Process) {
		own(s)
		if !p.Holds { // the hold had lapsed: a new term begins
			for event, job := range p.Jobs {
				p.Stale[event] = p.Stale[event] || job != noJob
			}
		}
		p.Holds = true
	})
	if !mine {
		x.fault(p, -1, takesLost, func(s *HoldState, _ *Process) { own(s) })
	}
}

// end is the end of a hold.
func (x *holdSteps) end(p int) {
	if now := x.from.Processes[p]; now.Holds {
		x.fault(p, -1, lapses, func(_ *HoldState, p *Process) { p.lapse() })
		x.close(p)
	}
	if x.from.Owner == int8(p) && !x.from.Expired {
		expire := func(s *HoldState, p *Process) {
			s.Expired = true
			if x.Broken != HoldByDatabaseClock {
				p.lapse()
			}
		}
		if x.from.Processes[p].Holds { // the process was stopped, or did not reach the database
			x.fault(p, -1, expires, expire)
		} else {
			x.take(p, -1, expires, expire)
		}
	}
	if x.from.Processes[p] != (Process{}) {
		x.fault(p, -1, dies, func(_ *HoldState, p *Process) { *p = Process{} })
	}
}

// close drains, and then gives the hold up. A listener that does not return, or an outcome
// that is not stored in time, is left behind (outbox/outbox.go).
func (x *holdSteps) close(p int) {
	step, owner := x.take, int8(p)
	for _, job := range x.from.Processes[p].Jobs {
		if job > waiting && x.Broken != CloseWithoutDraining {
			step = x.fault
		}
	}
	step(p, -1, closes, func(s *HoldState, p *Process) {
		if p.lapse(); s.Owner == owner {
			s.Owner = -1
		}
		for event, job := range p.Jobs {
			if job == waiting {
				p.Jobs[event] = noJob
			}
		}
	})
}

// lapse ends the hold by the process's own clock.
func (p *Process) lapse() {
	p.Holds = false
	for event, job := range p.Jobs {
		p.Lost[event] = p.Lost[event] || job == looked || job == inListener
	}
}

// read takes a row in hand, from the poller or the hot path (outbox/poller.go, tracker.go).
func (x *holdSteps) read(p, event int) {
	now := x.from.Processes[p]
	if x.from.Done[event] || now.Jobs[event] != noJob || !now.Holds {
		return
	}
	x.take(p, event, reads, func(_ *HoldState, p *Process) {
		p.Jobs[event], p.Stale[event], p.Lost[event] = waiting, false, false
	})
}

// deliver is the worker (outbox/worker.go, mayDeliver in flow.go).
func (x *holdSteps) deliver(p, event int) {
	now := x.from.Processes[p]
	set := func(job Job) func(*HoldState, *Process) {
		return func(_ *HoldState, p *Process) { p.Jobs[event] = job }
	}
	other := now.Jobs[1-event]
	busy := (other == looked || other == inListener) && x.Broken != WorkersLookAhead
	switch now.Jobs[event] {
	case waiting:
		switch {
		case busy:
		case now.Holds && (!now.Stale[event] || x.Broken == TermsAreOne) || x.Broken == WorkersDoNotLook:
			x.take(p, event, looks, func(_ *HoldState, p *Process) {
				p.Jobs[event], p.Lost[event] = looked, !now.Holds || now.Stale[event]
			})
		default:
			x.take(p, event, letsGo, set(noJob))
		}
	case looked:
		x.take(p, event, begins, set(inListener))
	case inListener:
		x.take(p, event, ends, func(s *HoldState, p *Process) {
			p.Jobs[event], p.Lost[event] = succeeded, false
			s.Delivered[event] = true
		})
		x.take(p, event, fails, func(_ *HoldState, p *Process) {
			if p.Jobs[event], p.Lost[event] = failed, false; x.Broken == FailuresAreDone {
				p.Jobs[event] = succeeded
			}
		})
	default:
	}
}

// store is the completer without leases: only the status protects a row (outbox/completer.go,
// sqlstore/mark.go).
func (x *holdSteps) store(p, event int) {
	job := x.from.Processes[p].Jobs[event]
	mark := func(s *HoldState) {
		switch {
		case job == succeeded:
			s.Done[event] = true
		case !s.Done[event], x.Broken == RetryOfAnyStatus:
			s.Done[event] = false
		}
	}
	what := map[Job]string{succeeded: storesDone, failed: storesFail}[job]
	if what == "" {
		return
	}
	x.take(p, event, what, func(s *HoldState, p *Process) {
		mark(s)
		p.Jobs[event], p.Stale[event], p.Lost[event] = noJob, false, false
	})
	x.fault(p, event, storeLost, func(s *HoldState, _ *Process) { mark(s) })
}
