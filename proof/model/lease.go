package model

// Leases is the model of the lease protocol of MultiNode: one event, two nodes. Node 0 writes the
// event. Each comment names the file of package outbox, or of its store, that a step stands for.
//
// There is no clock. A lease expires when a step says so. The expiry is a fault while a live node
// has the event in hand, because a node renews the node's leases: the process was stopped for
// longer than the lease lasts, or did not reach the database. Otherwise the expiry is time that
// passes. Every event is due at once.
type Leases struct {
	MaxAttempts uint8
	Faults      uint8 // that may happen
	Replays     uint8 // of a dead event
	// Returns: listeners defer the event, and nodes that close give it back.
	Returns bool
	// Broken breaks the model, to show that the rules find the fault. Empty: the model is as the
	// code.
	Broken Mutation
	// replaying a trace, attempts have no bound.
	replaying bool
}

// Mutation is a way to break a model.
type Mutation string

// Model makes the model for the checker.
func (m Leases) Model() Model[State, Event] {
	return Model[State, Event]{
		Next: m.next, Canon: m.canon, Twin: m.twin, Rules: m.rules(),
		Settled: func(s State) bool {
			return s.Tx == unwritten || s.Tx == rolledBack || s.Tx == committed && !s.Row.Status.pending()
		},
	}
}

// steps are the steps from a single state.
type steps struct {
	Leases
	from  State
	yield func(Event, bool, State)
}

// take takes a step that is no fault.
func (x *steps) take(e Event, change func(s *State)) {
	s := x.from
	change(&s)
	x.yield(e, false, s)
}

// fault takes a step that is a fault, if another fault may happen.
func (x *steps) fault(e Event, change func(s *State)) {
	if x.from.Faults >= x.Faults {
		return
	}
	s := x.from
	s.Faults++
	change(&s)
	x.yield(e, true, s)
}

func internal(node int, text string) Event { return Event{Kind: Internal, Node: node, Text: text} }

// next lists the steps from a state.
func (m Leases) next(from State, yield func(Event, bool, State)) {
	x := &steps{m, from, yield}
	x.write()
	x.expire()
	x.late()
	for node := range from.Nodes {
		x.claim(node)
		for hand := range from.Nodes[node].Hand {
			x.deliver(node, hand)
			x.mark(node, hand)
		}
		x.renew(node)
		for of := range from.Nodes[node].Releases {
			x.release(node, of)
		}
		x.crash(node)
	}
	x.replay()
}

// inHand calls visit for each delivery that a listener has, had or will have.
func (s *State) inHand(visit func(node int, d *Delivery)) {
	for node := range s.Nodes {
		for hand := range s.Nodes[node].Hand {
			if d := &s.Nodes[node].Hand[hand]; d.Phase > reserved {
				visit(node, d)
			}
		}
	}
}

// expire lets time pass: the lease is over by the database's clock.
func (x *steps) expire() {
	row := x.from.Row
	if row.Lease == 0 || row.Expired || !row.Status.pending() || x.from.Tx == rolledBack {
		return
	}
	kept := false // a live node renews it (outbox/internal/leases), or is about to answer
	x.from.inHand(func(_ int, d *Delivery) { kept = kept || d.Lease == row.Lease })
	for _, n := range x.from.Nodes {
		kept = kept || n.Claim.Name == row.Lease
	}
	step := x.take
	if kept && x.Broken != LeasesAreNotRenewed {
		step = x.fault
	}
	step(Event{Kind: Expired, Lease: row.Lease}, func(s *State) {
		s.Row.Expired = true
		s.inHand(func(_ int, d *Delivery) { d.Outlived = d.Outlived || d.Lease == row.Lease })
		for i := range s.Nodes {
			c := &s.Nodes[i].Claim
			c.Outlived = c.Outlived || c.Name == row.Lease
		}
	})
}

// crash kills a process and starts it again. The memory of the process is lost; a statement that
// the process sent may still be carried out.
func (x *steps) crash(node int) {
	if x.from.Nodes[node] == (Node{}) && (node != 0 || x.from.Writer != waits || x.from.Tx == unwritten) {
		return
	}
	x.fault(Event{Kind: Crashed, Node: node}, func(s *State) {
		s.Nodes[node], s.Crashes = Node{}, true
		if node == 0 && s.Tx != unwritten && s.Writer == waits {
			s.Writer = doubts
		}
	})
}

// replay is a replay by an operator (outbox/deadletters.go, sqlstore/dead.go).
func (x *steps) replay() {
	if x.from.Row.Status != Dead || x.from.Replays >= x.Replays {
		return
	}
	x.take(Event{Kind: Replayed}, func(s *State) {
		s.Replays++
		s.Row = Row{Status: New, Next: s.name(0)} // the row is due from now on
		s.Begun = 0
		s.inHand(func(_ int, d *Delivery) { d.Counted, d.Old = false, true })
		for i := range s.Nodes {
			s.Nodes[i].Claim.Old = s.Nodes[i].Claim.Name != 0
		}
	})
}
