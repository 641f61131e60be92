package model

// deliver is a delivery (outbox/worker.go, deliver.go, result.go). A worker does not look at the
// lease: an outcome that comes too late is refused.
func (x *steps) deliver(node, hand int) {
	d := x.from.Nodes[node].Hand[hand]
	change := func(s *State, f func(d *Delivery)) { f(&s.Nodes[node].Hand[hand]) }
	switch d.Phase {
	case queued:
		if d.Seen >= max(x.MaxAttempts, 2) && x.Broken != NeverExhausted {
			x.take(internal(node, exhausted), func(s *State) {
				change(s, func(d *Delivery) { d.Phase, d.Outcome = answered, OutcomeDead })
			})
			break
		}
		x.take(Event{Kind: Began, Node: node, Lease: d.Lease, Attempts: d.Seen}, func(s *State) {
			if !d.Old {
				s.Begun++
			}
			change(s, func(d *Delivery) { d.Phase, d.Counted = running, !d.Old })
		})
		if x.Returns {
			x.take(internal(node, letGo), func(s *State) { x.letGo(s, node, hand) })
		}
	case running:
		x.end(node, hand, OutcomeDone)
		if x.Returns {
			x.end(node, hand, OutcomeDeferred)
			x.end(node, hand, outcomeReleased)
		}
		x.end(node, hand, OutcomeDead) // the listener says so, or it was the last attempt
		if d.Seen+1 < x.MaxAttempts {
			x.end(node, hand, OutcomeRetry)
		}
	default:
	}
}

// end ends a listener.
func (x *steps) end(node, hand int, o Outcome) {
	x.take(Event{Kind: Ended, Node: node, Outcome: o}, func(s *State) {
		d := &s.Nodes[node].Hand[hand]
		d.Phase, d.Outcome = answered, o
		if x.Broken == FailuresAreDone && o == OutcomeRetry {
			d.Outcome = OutcomeDone
		}
		s.Delivered = s.Delivered || o == OutcomeDone
		if d.Counted && (o == OutcomeDeferred || o == outcomeReleased) {
			s.Begun--
			d.Counted = false
		}
		if o == outcomeReleased {
			x.letGo(s, node, hand)
		}
	})
}

// letGo ends a delivery without an outcome.
func (x *steps) letGo(s *State, node, hand int) {
	d := s.Nodes[node].Hand[hand]
	s.Nodes[node].Hand[hand] = Delivery{}
	s.giveBack(node, d.Lease, false)
}
