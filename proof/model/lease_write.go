package model

// write is the transaction that writes the event, and how its node handles the end
// (outbox/writer.go, commit.go).
func (x *steps) write() {
	switch {
	case x.from.Tx == unwritten:
		x.insert()
	case x.from.Writer == waits:
		x.commit()
		x.ended()
	case x.from.Tx == open: // the server comes to the COMMIT late, or never does
		x.commit()
		x.take(internal(0, lateRollback), func(s *State) { s.Tx = rolledBack })
	}
}

// insert inserts the row: under the writer's lease, or without a lease when the hot queue has no
// room, or the event is due later (sqlstore/insert.go).
func (x *steps) insert() {
	s := x.from
	lease := s.name(0)
	x.take(Event{Kind: Wrote, Lease: lease, Changed: true}, func(s *State) {
		s.name(0)
		s.Tx, s.Lease, s.Row.Lease = open, lease, lease
		s.Nodes[0].Hand[0] = Delivery{Phase: reserved, Lease: lease, Born: lease}
		if x.Broken == HotBeforeCommit {
			s.Nodes[0].Hand[0].Phase = queued
		}
	})
	x.take(Event{Kind: Wrote, Changed: true}, func(s *State) { s.Tx = open })
}

// commit is the COMMIT in the database.
func (x *steps) commit() {
	if x.from.Tx == open {
		x.take(Event{Kind: Committing}, func(s *State) { s.Tx = committed })
	}
}

// ended is how the writer learns of the end.
func (x *steps) ended() {
	hand := x.from.Nodes[0].Hand[0]
	own := hand.Phase == reserved // otherwise a claim took the place of the reservation, or there was no reservation
	if x.from.Tx == open {        // the caller rolled back, or COMMIT was refused
		x.take(Event{Kind: RolledBack}, func(s *State) {
			s.Tx, s.Writer = rolledBack, told
			s.unreserve()
		})
	}
	if x.from.Tx == committed {
		// A transaction that took longer than half of the lease does not go to the hot queue.
		fresh := x.from.Row.Lease == x.from.Lease && !x.from.Row.Expired
		if own && (fresh || x.Broken == HotWithoutLease) {
			x.take(Event{Kind: Committed}, func(s *State) {
				s.Writer = told
				s.Nodes[0].Hand[0].Phase = queued
			})
		}
		x.take(Event{Kind: Committed}, func(s *State) { // no room, or too late
			s.Writer = told
			s.unreserve()
			s.giveBack(0, s.Lease, false)
		})
	}
	x.fault(Event{Kind: InDoubt}, func(s *State) {
		s.Writer = doubts
		if own && x.Broken == HotInDoubt {
			s.Nodes[0].Hand[0].Phase = queued
			return
		}
		s.unreserve()
		s.giveBack(0, s.Lease, true)
	})
}

// unreserve lets go of the reservation (outbox/tracker.go).
func (s *State) unreserve() {
	if d := &s.Nodes[0].Hand[0]; d.Phase == reserved {
		*d = Delivery{}
	}
}

// giveBack hands a lease to the releaser. At most two other leases have an effect: the row's lease,
// and the lease of a late claim.
func (s *State) giveBack(node int, lease Name, doubt bool) {
	releases := &s.Nodes[node].Releases
	for i, r := range releases {
		if lease != 0 && (r.Name == 0 || r.Name == lease || r.Name != s.Row.Lease && r.Name != s.Late.Lease) {
			releases[i] = Release{Name: lease, Doubt: doubt}
			return
		}
	}
}
