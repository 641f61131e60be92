package model

// claim is the poller's part (outbox/poller_claim.go, sqlstore/read.go).
func (x *steps) claim(node int) {
	c := x.from.Nodes[node].Claim
	if c.Name == 0 {
		x.sendClaim(node)
		return
	}
	x.claimAnswered(node)
	x.fault(Event{Kind: AnswerLost, Node: node, Lease: c.Name}, func(s *State) {
		s.Nodes[node].Claim = Claim{}
		x.giveUp(s, node, c.Name)
	})
}

// claimable reports whether a claim takes the row, and whether that counts an attempt
// (claimable and attempt in sqlstore/read.go).
func (m Leases) claimable(s *State) (ok, counts bool) {
	row := s.Row
	switch {
	case s.Tx != committed, !row.Status.pending() && m.Broken != ClaimWithoutStatus:
		return false, false
	case row.Lease == 0:
		return true, false
	default:
		over := row.Expired && m.Broken != NoTakeover || m.Broken == TakeoverWithoutExpiry
		return over, m.Broken != TakeoverUncounted
	}
}

// executeClaim carries a claim out.
func (m Leases) executeClaim(s *State, lease Name) (got, counted bool) {
	got, counted = m.claimable(s)
	if got {
		s.Row.Lease, s.Row.Expired = lease, false
		if counted && (s.Row.Attempts <= m.MaxAttempts || m.replaying) { // more make no difference
			s.Row.Attempts++
		}
	}
	return got, got && counted
}

// sendClaim sends a claim that takes the row. A claim that the client gives up may be carried out
// later, so the lease of the claim is given back.
func (x *steps) sendClaim(node int) {
	s := x.from
	lease := s.name(node)
	got, counted := x.executeClaim(&s, lease)
	if !got {
		return
	}
	held := s.Nodes[node].Hand[0]
	s.Nodes[node].Claim = Claim{Name: lease, Attempts: s.Row.Attempts, Shown: held.Storing && held.Born == s.Row.Next}
	x.yield(Event{Kind: Claimed, Node: node, Lease: lease, Attempts: s.Row.Attempts, Counted: counted, Changed: true}, false, s)
	if s.Late.Verb == noStatement {
		x.fault(Event{Kind: GaveUp, Node: node, Lease: lease}, func(s *State) {
			lease := s.name(node)
			s.Late = Statement{Verb: verbClaim, Lease: lease}
			x.giveUp(s, node, lease)
		})
	}
}

// giveUp is for a claim that failed (outbox/internal/leases).
func (x *steps) giveUp(s *State, node int, lease Name) {
	if x.Broken != ClaimsAreForgotten {
		s.giveBack(node, lease, true)
	}
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

// covers is the tracker's: the claimed row is a copy of the delivery in hand, unless the retry or
// deferral of that delivery is in the row.
func (d Delivery) covers(c Claim) bool {
	return d.Phase > reserved && (!d.Storing || d.Outcome.final() || !c.Shown)
}
