package model

// canon gives equivalent states the same form: it clears everything that has no effect any more,
// and renames the leases in the order in which the state shows them.
func (m Leases) canon(s State) State {
	if m.Broken == "" {
		s.prune()
	}
	var renamed [128]Name
	given := uint8(0)
	s.names(func(n *Name) {
		if *n == 0 {
			return
		}
		if renamed[*n>>1] == 0 {
			given++
			renamed[*n>>1] = Name(given)<<1 | *n&1
		}
		*n = renamed[*n>>1]
	})
	s.Names = given
	return s
}

// prune clears everything that has no effect any more. In a broken model these parts may have an
// effect.
func (s *State) prune() {
	if s.Writer != waits {
		s.Lease = 0
	}
	if s.Tx != open && s.Writer == doubts {
		s.Writer = told
	}
	// The row can get a lease later only from a claim that is carried out late.
	if s.Late.Verb == verbClaim && !s.Row.Status.pending() && s.Row.Status != Dead {
		s.Late = Statement{}
	}
	alive := func(lease Name) bool {
		return s.Row.Lease == lease || s.Late.Verb == verbClaim && s.Late.Lease == lease
	}
	for i := range s.Nodes {
		all := s.Nodes[i].Releases
		s.Nodes[i].Releases = [3]Release{}
		for _, r := range all {
			if alive(r.Name) {
				s.giveBack(i, r.Name, r.Doubt)
			}
		}
		if d := &s.Nodes[i].Hand[1]; d.Phase > running && !alive(d.Lease) { // the outcome will be refused
			*d = Delivery{}
		}
	}
	if s.Late.Verb != noStatement && !alive(s.Late.Lease) {
		s.Late = Statement{}
	}
	known := false
	s.inHand(func(_ int, d *Delivery) { known = known || d.Born == s.Row.Next })
	if !known {
		s.Row.Next = 0
	}
}

// twin lets the nodes change places. They are alike when node 0 is done with writing.
func (m Leases) twin(s State) State {
	if m.Broken != "" || s.Writer == waits {
		return s
	}
	s.Nodes[0], s.Nodes[1] = s.Nodes[1], s.Nodes[0]
	s.names(func(n *Name) {
		if *n != 0 {
			*n ^= 1
		}
	})
	return s
}
