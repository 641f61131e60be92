package model

// mark stores an outcome (outbox/completer.go, outbox/internal/groupcommit/retry.go, sqlstore/mark.go).
func (x *steps) mark(node, hand int) {
	d := x.from.Nodes[node].Hand[hand]
	change := func(s *State, f func(d *Delivery)) { f(&s.Nodes[node].Hand[hand]) }
	switch d.Phase {
	case answered:
		s := x.from
		changed := x.execute(&s, d.statement())
		change(&s, func(d *Delivery) {
			d.Phase, d.Storing, d.Under, d.Changed = marking, true, d.Lease, changed
		})
		x.yield(Event{Kind: Marked, Node: node, Outcome: d.Outcome, Lease: d.Lease, Changed: changed}, false, s)
		if x.from.Late.Verb == noStatement {
			x.fault(Event{Kind: GaveUp, Node: node, Lease: d.Lease}, func(s *State) {
				s.Late = d.statement()
				change(s, func(d *Delivery) { d.Storing = true })
			})
		}
	case marking:
		x.take(internal(node, markAnswered), func(s *State) {
			change(s, func(d *Delivery) {
				switch claimed := d.Lease != d.Under; {
				case claimed && !d.Changed: // once more, under the new lease
					d.Phase, d.Under = answered, 0
					return
				case claimed && x.Broken != LeaseAfterMarkForgotten: // after the mark
					s.giveBack(node, d.Lease, false)
				}
				*d = Delivery{}
			})
		})
		x.fault(Event{Kind: AnswerLost, Node: node, Lease: d.Under}, func(s *State) {
			change(s, func(d *Delivery) { d.Phase, d.Under, d.Changed = answered, 0, false })
		})
	default:
	}
}

// statement is the mark of a delivery.
func (d Delivery) statement() Statement {
	st := Statement{Verb: verbMark, Lease: d.Lease, Outcome: d.Outcome, Born: d.Born}
	if d.Outcome == OutcomeRetry {
		st.Attempts = d.Seen + 1
	}
	return st
}

// sameLease is the fence: the row is under the lease that the statement names.
func (m Leases) sameLease(s *State, st Statement) bool {
	switch {
	case m.Broken == MarkWithoutFence && st.Verb == verbMark, m.Broken == ReleaseWithoutName && st.Verb == verbRelease:
		return true
	case m.Broken == NamesPerOwner:
		return s.Row.Lease != 0 && s.Row.Lease.node() == st.Lease.node()
	default:
		return s.Row.Lease == st.Lease
	}
}

// execute carries out a mark or a release, and reports whether it changed the row.
func (m Leases) execute(s *State, st Statement) (changed bool) {
	row := &s.Row
	open := row.Status.pending() || st.Outcome == OutcomeDone && row.Status != Done
	if s.Tx != committed || !open || !m.sameLease(s, st) {
		return false
	}
	row.Lease, row.Expired = 0, false
	switch st.Outcome {
	case OutcomeDone:
		row.Status = Done
	case OutcomeDead:
		row.Status = Dead
	case OutcomeRetry:
		row.Status, row.Next = Retry, st.Born
		if row.Attempts < st.Attempts || m.Broken == AttemptsLowered {
			row.Attempts = st.Attempts
		}
	case OutcomeDeferred:
		row.Status, row.Next = New, st.Born
	default:
	}
	return true
}

// renew restarts the leases of the events in hand (outbox/internal/leases).
func (x *steps) renew(node int) {
	d := x.from.Nodes[node].Hand[0]
	row := x.from.Row
	if d.Phase <= reserved || !row.Status.pending() {
		return
	}
	if row.Lease != d.Lease && (x.Broken != RenewWithoutName || row.Lease == 0) {
		return
	}
	x.take(Event{Kind: Renewed, Node: node, Lease: d.Lease, Changed: true}, func(s *State) { s.Row.Expired = false })
}

// release gives a lease back (outbox/internal/leases). If the row may not be there yet, the release
// goes on until the row changes or the lease is over.
func (x *steps) release(node, of int) {
	r := x.from.Nodes[node].Releases[of]
	if r.Name == 0 {
		return
	}
	statement := Statement{Verb: verbRelease, Lease: r.Name}
	s := x.from
	e := Event{Kind: Released, Node: node, Lease: r.Name, Changed: x.execute(&s, statement)}
	x.fault(e, func(s *State) { x.execute(s, statement) }) // no answer comes
	if e.Changed || !r.Doubt {
		s.Nodes[node].Releases[of] = Release{}
	}
	x.yield(e, false, s)
	under := x.from.Row.Lease == r.Name
	if under && x.from.Row.Expired || !under && x.from.Late.Lease != r.Name {
		x.take(internal(node, releaseOver), func(s *State) { s.Nodes[node].Releases[of] = Release{} })
	}
	if x.from.Late.Verb == noStatement {
		x.fault(Event{Kind: GaveUp, Node: node, Lease: r.Name}, func(s *State) { s.Late = statement })
	}
}

// late carries out a statement that the client gave up, or loses the statement.
func (x *steps) late() {
	st := x.from.Late
	if st.Verb == noStatement {
		return
	}
	s := x.from
	s.Late = Statement{}
	e := Event{Node: st.Lease.node(), Lease: st.Lease, Outcome: st.Outcome, Late: true}
	x.yield(internal(e.Node, lateLost), false, s)
	switch st.Verb {
	case verbClaim:
		e.Kind = Claimed
		e.Changed, e.Counted = x.executeClaim(&s, st.Lease)
		e.Attempts = s.Row.Attempts
	case verbRelease:
		e.Kind, e.Changed = Released, x.execute(&s, st)
	default:
		e.Kind, e.Changed = Marked, x.execute(&s, st)
	}
	if e.Changed {
		x.yield(e, false, s)
	}
}
