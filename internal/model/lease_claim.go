package model

// claim is the poller's part (outbox/poller_claim.go, sqlstore/read.go).
func (x *steps) claim(node int) {
	switch c := x.from.Nodes[node].Claim; {
	case c.Name == 0:
		x.claimFirst(node)
	case c.Executed:
		x.claimAnswered(node)
		x.fault(Event{Kind: AnswerLost, Node: node, Lease: c.Name}, func(s *State) {
			s.Nodes[node].Claim = Claim{Name: c.Name}
		})
	default:
		x.claimAgain(node)
	}
}

// claimable reports whether a claim takes the row, and whether that counts an attempt
// (claimable and attempt in sqlstore/read.go).
func (m Leases) claimable(s *State, lease Name) (ok, counts bool) {
	row := s.Row
	switch {
	case s.Tx != committed, !row.Status.pending() && m.Broken != ClaimWithoutStatus:
		return false, false
	case row.Lease == 0, row.Lease == lease:
		return true, false
	default:
		over := row.Expired && m.Broken != NoTakeover || m.Broken == TakeoverWithoutExpiry
		return over, m.Broken != TakeoverUncounted
	}
}

// executeClaim carries a claim out.
func (m Leases) executeClaim(s *State, lease Name) (got, counted bool) {
	got, counted = m.claimable(s, lease)
	if got {
		s.Row.Lease, s.Row.Expired, s.Row.Over = lease, false, false
		if counted && (s.Row.Attempts <= m.MaxAttempts || m.replaying) { // more make no difference
			s.Row.Attempts++
		}
	}
	return got, got && counted
}

func (x *steps) claimFirst(node int) {
	s := x.from
	lease := s.name(node)
	if ok, _ := x.claimable(&s, lease); !ok {
		return
	}
	x.executed(node, lease)
	if s.Late.Verb == noStatement {
		x.fault(Event{Kind: GaveUp, Node: node, Lease: lease}, func(s *State) {
			lease := s.name(node)
			s.Late = Statement{Verb: verbClaim, Lease: lease, Born: s.Row.Next}
			s.Nodes[node].Claim = Claim{Name: lease}
		})
	}
}

// executed is a claim that takes the row.
func (x *steps) executed(node int, lease Name) {
	s := x.from
	s.Names = max(s.Names, uint8(lease>>1))
	got, counted := x.executeClaim(&s, lease)
	if !got {
		return
	}
	held := s.Nodes[node].Hand[0]
	s.Nodes[node].Claim = Claim{
		Name: lease, Executed: true, Attempts: s.Row.Attempts,
		Shown: held.Storing && held.Born == s.Row.Next,
	}
	x.yield(Event{Kind: Claimed, Node: node, Lease: lease, Attempts: s.Row.Attempts, Counted: counted, Changed: true}, false, s)
}

// claimAgain makes a claim again under the same name, after its answer was lost. Among
// other rows it may return this one or not.
func (x *steps) claimAgain(node int) {
	c := x.from.Nodes[node].Claim
	x.executed(node, c.Name)
	x.take(internal(node, claimEmpty), func(s *State) { s.Nodes[node].Claim = Claim{} })
}

// claimAnswered hands the row over (acquire in outbox/tracker.go).
func (x *steps) claimAnswered(node int) {
	c, held := x.from.Nodes[node].Claim, x.from.Nodes[node].Hand[0]
	if held.covers(c) && x.Broken != CopiesAreDelivered {
		x.take(internal(node, claimCopy), func(s *State) {
			n := &s.Nodes[node]
			n.Claim = Claim{}
			n.Hand[0].Lease = c.Name
		})
		return
	}
	if held.Phase > reserved && x.from.Nodes[node].Hand[1].Phase != none {
		return // two forgotten deliveries are more than the model has room for
	}
	x.take(internal(node, claimAnswered), func(s *State) {
		n := &s.Nodes[node]
		n.Claim = Claim{}
		if held.Phase > reserved {
			n.Hand[1] = held
		}
		n.Hand[0] = Delivery{Phase: queued, Lease: c.Name, Born: c.Name, Seen: c.Attempts, Outlived: c.Outlived, Old: c.Old}
	})
}

// covers is the tracker's: the claimed row is a copy of the delivery in hand, unless that
// one's retry or deferral is in the row.
func (d Delivery) covers(c Claim) bool {
	return d.Phase > reserved && (!d.Storing || d.Outcome.final() || !c.Shown)
}
