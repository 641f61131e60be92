package model

// deliver is a delivery (outbox/worker.go, deliver.go). A worker looks at its own clock before it
// begins an event that has no lease.
func (x *rangeSteps) deliver(p, row int) {
	d := x.from.Peers[p].Hand[row]
	step := func(what string) RangeStep { return RangeStep{Process: p, Row: row, What: what} }
	switch d.Phase {
	case queued:
		lasts := x.from.lasts(d)
		for _, r := range x.from.Ledger {
			lasts = lasts || x.Broken == BeginInAnyRange && d.Title == rangeTitle && r.readable(p)
		}
		if x.exhausted(d) {
			x.take(step(exhaustsRow), func(s *RangeState) {
				d := &s.Peers[p].Hand[row]
				d.Phase, d.Outcome = answered, OutcomeDead
			})
			break
		}
		if lasts || x.Broken == BeginAfterEnd {
			x.take(step(beginsRow), func(s *RangeState) {
				d := &s.Peers[p].Hand[row]
				if !d.Old {
					s.Rows[row].Begun++
					s.Rows[row].Loose = s.Rows[row].Loose || d.Title != leaseTitle
				}
				d.Phase, d.Counted = running, !d.Old
			})
		}
		if !lasts || x.Returns {
			x.take(step(returnsRow), func(s *RangeState) { x.letGo(s, p, row) })
		}
	case running:
		if x.Poison {
			break
		}
		x.end(p, row, OutcomeDone)
		if !x.Succeeds {
			x.end(p, row, OutcomeDead)
		}
		if !x.Succeeds && d.Seen+1 < x.MaxAttempts {
			x.end(p, row, OutcomeRetry)
		}
		if x.Returns {
			x.end(p, row, OutcomeDeferred)
			x.end(p, row, outcomeReleased)
		}
	case answered:
		if d.Unsure && x.Broken == OutcomesGivenUp {
			x.take(step(abandonsRow), func(s *RangeState) { s.Peers[p].Hand[row], s.Left = Holding{}, true })
		}
	default:
	}
}

// exhausted reports whether an event had all of its deliveries (outbox/deliver.go).
func (x *rangeSteps) exhausted(d Holding) bool {
	switch {
	case x.Broken == NeverExhausted:
		return false
	case d.Counts && x.Broken != DeathsForgotten:
		return d.Seen+1 >= max(x.MaxAttempts, 2)
	default:
		return d.Seen >= max(x.MaxAttempts, 2)
	}
}

// end ends a listener.
func (x *rangeSteps) end(p, row int, o Outcome) {
	x.take(RangeStep{Process: p, Row: row, What: endsRow, More: ", outcome " + o.String()}, func(s *RangeState) {
		d := &s.Peers[p].Hand[row]
		d.Phase, d.Outcome = answered, o
		if x.Broken == FailuresAreDone && o == OutcomeRetry {
			d.Outcome = OutcomeDone
		}
		s.Rows[row].Delivered = s.Rows[row].Delivered || o == OutcomeDone
		if d.Counted && (o == OutcomeDeferred || o == outcomeReleased) {
			s.Rows[row].Begun--
			s.Rows[row].Loose = false
			d.Counted = false
		}
		if o == outcomeReleased {
			x.letGo(s, p, row)
		}
	})
}

// letGo ends a delivery without an outcome. Without a lease, the row stays as it is.
func (x *rangeSteps) letGo(s *RangeState, p, row int) {
	d := s.Peers[p].Hand[row]
	s.Peers[p].Hand[row] = Holding{}
	s.Peers[p].Releases[row] = s.Peers[p].Releases[row] || d.leased()
}

// lawful reports whether a process may change a row: under its lease, or without a lease while the
// range in which the row was read is in the ledger. If that range expired, all processes may.
func (x *rangeSteps) lawful(p, row int, leased, names bool) bool {
	r := x.from.Rows[row]
	if leased || r.Lease != 0 {
		return leased && names && r.Lease != 0
	}
	of := x.from.covering(r.Place)
	return of != nil && (int(of.Holder) == p+1 || of.Expired || of.Suspect)
}

// mark stores an outcome, again and again until there is an answer (outbox/completer.go,
// sqlstore/mark.go).
func (x *rangeSteps) mark(p, row int) {
	d := x.from.Peers[p].Hand[row]
	st := LateRow{What: doMark, Process: uint8(p), Row: uint8(row), Title: d.Title, Names: d.Names, Again: d.Again, Outcome: d.Outcome}
	if d.Outcome == OutcomeRetry {
		st.Attempts = d.Seen + 1
	}
	switch d.Phase {
	case answered:
		s := x.from
		step := x.executeMark(&s, st)
		h := &s.Peers[p].Hand[row]
		h.Phase, h.Storing, h.Changed, h.Handed = marking, true, step.Changed, false
		h.Shown = h.Shown || step.Changed && !h.Outcome.final()
		if d.Past && step.Changed && !h.Outcome.final() {
			s.comesBack(p, row)
		}
		x.emit(step, false, s)
		if x.from.Late.What == nothing {
			x.fault(RangeStep{Process: p, Row: row, What: "gives up a mark of", More: ", which was not carried out"}, func(s *RangeState) {
				s.Late = st
				s.Peers[p].Hand[row].Storing, s.Peers[p].Hand[row].Unsure = true, d.Title != leaseTitle
			})
		}
	case marking:
		x.take(RangeStep{Process: p, Row: row, What: markHeard}, func(s *RangeState) {
			h := &s.Peers[p].Hand[row]
			if h.Handed && !h.Changed { // once more, under the new lease
				h.Phase, h.Handed = answered, false
				return
			}
			s.Peers[p].Releases[row] = s.Peers[p].Releases[row] || h.Handed && h.Names
			*h = Holding{}
		})
		x.fault(RangeStep{Process: p, Row: row, What: markUnheard}, func(s *RangeState) {
			h := &s.Peers[p].Hand[row]
			h.Phase, h.Changed, h.Handed, h.Unsure = answered, false, false, h.Title != leaseTitle
		})
	default:
	}
}

// comesBack: an outcome set the same available_at as before.
func (s *RangeState) comesBack(p, row int) {
	s.Peers[p].Hand[row].Past = false
	for p := range s.Peers {
		if d := &s.Peers[p].Hand[row]; d.Again {
			d.Names, d.Again = true, false
		}
	}
	if s.Late.Again && int(s.Late.Row) == row {
		s.Late.Names, s.Late.Again = true, false
	}
}

// executeMark carries a mark out.
func (x *rangeSteps) executeMark(s *RangeState, st LateRow) RangeStep {
	r := &s.Rows[st.Row]
	leased := st.Title == leaseTitle
	step := RangeStep{Process: int(st.Process), Row: int(st.Row), What: marksRow, Lawful: x.lawful(int(st.Process), int(st.Row), leased, st.Names)}
	fenced := st.Names && leased == (r.Lease != 0)
	switch {
	case x.Broken == MarkWithoutPlace && !leased:
		fenced = r.Lease == 0
	case x.Broken == MarkWithoutNoLease && !leased:
		fenced = st.Names
	}
	open := r.Status.pending() || st.Outcome == OutcomeDone && r.Status == Dead
	step.Changed = fenced && open
	step.More = ", outcome " + st.Outcome.String()
	if !step.Changed {
		step.More += ": the row is left alone"
		return step
	}
	s.leaseEnds(int(st.Row))
	r.Loose = false
	switch st.Outcome {
	case OutcomeDone:
		r.Status = Done
	case OutcomeDead:
		r.Status = Dead
	case OutcomeRetry:
		r.Status, r.Attempts = Retry, max(r.Attempts, st.Attempts)
		s.dueAgain(int(st.Row), x.last())
	case OutcomeDeferred:
		r.Status = New
		s.dueAgain(int(st.Row), x.last())
	default:
	}
	return step
}

// claim leases a row: a suspect, or a row whose lease expired (outbox/poller_ranges.go,
// sqlstore/claim.go).
func (x *rangeSteps) claim(p, row int) {
	r := x.from.Rows[row]
	if !r.Committed || !r.Status.pending() || x.from.Peers[p].Claim.Row != 0 {
		return
	}
	if of := x.from.covering(r.Place); of != nil && r.free() {
		taken := int(of.Holder) == p+1 && of.Suspect && of.Known && !of.Expired
		if taken && !of.Read && (!of.Unsure || x.Broken == DropUnsure) || x.Broken == SuspectsAtOnce && of.Expired {
			x.sendClaim(LateRow{What: doSuspect, Process: uint8(p), Row: uint8(row), After: of.After, Upto: of.Upto})
		}
	}
	if of := x.from.covering(r.Place); of != nil && r.free() && r.Postponed && of.readable(p) && x.from.Peers[p].Hand[row].Phase == none {
		x.sendClaim(LateRow{What: doPostponed, Process: uint8(p), Row: uint8(row)})
	}
	x.sendClaim(LateRow{What: doTakeOver, Process: uint8(p), Row: uint8(row)})
}

// sendClaim sends a claim that takes the row.
func (x *rangeSteps) sendClaim(st LateRow) {
	x.execute(st, func(step RangeStep, s RangeState) {
		s.Peers[st.Process].Claim = RowClaim{
			Row: st.Row + 1, Names: true, Seen: s.Rows[st.Row].Attempts,
			Counts: st.What == doTakeOver && x.from.Rows[st.Row].Suspect, Suspect: st.What == doSuspect, After: st.After,
		}
		x.emit(step, false, s)
		if x.from.Late.What != nothing {
			return
		}
		x.fault(RangeStep{Process: int(st.Process), Row: int(st.Row), What: "gives up a claim, which was not carried out: it", More: " " + st.What.String()}, func(s *RangeState) {
			s.Late = st
			s.unsure(int(st.Process), st.What == doSuspect, st.After)
		})
	})
}

// unsure: a claim of suspects got no answer.
func (s *RangeState) unsure(p int, suspect bool, after uint8) {
	if r := s.at(after); suspect && r != nil && r.Suspect && r.Known && int(r.Holder) == p+1 {
		r.Unsure = true
	}
}

// execute carries a claim out, and calls visit with the states after, if it takes the row.
func (x *rangeSteps) execute(st LateRow, visit func(step RangeStep, s RangeState)) {
	s := x.from
	r := &s.Rows[st.Row]
	step := RangeStep{Process: int(st.Process), Row: int(st.Row), What: st.What.String(), Changed: true}
	suspect := st.What == doSuspect
	takes := r.Lease != 0 && r.Expired || x.Broken == TakeoverOfFree && r.Lease == 0
	switch {
	case st.What == doPostponed:
		takes = r.Lease == 0 && r.Postponed
	case suspect:
		takes = r.Lease == 0 && st.After < r.Place && r.Place <= st.Upto
	}
	if !takes || !r.Committed || !r.Status.pending() {
		return
	}
	switch step.Lawful = x.lawful(int(st.Process), int(st.Row), false, true); {
	case st.What == doPostponed: // no process delivers the row without a lease
		step.Lawful = r.Postponed
	case r.Lease != 0:
		step.Lawful = r.Expired
	}
	step.Counted = st.What == doTakeOver || suspect && x.Broken == SuspectsCounted
	if step.Counted && r.Attempts <= x.MaxAttempts {
		r.Attempts++
	}
	if suspect && r.Loose { // the delivery without a lease counts no attempt
		r.Lost++
	}
	r.Loose = false
	named := suspect || r.Suspect && x.Broken != DeathsNamedOnce
	s.leaseEnds(int(st.Row))
	r.Lease, r.Suspect = st.Process+1, named
	if !suspect || x.Broken == SuspectsWithoutMove || x.Broken == MarkWithoutNoLease {
		visit(step, s)
		return
	}
	if x.Broken == CopiesOfRetries {
		s.passes(int(st.Process), int(st.Row))
	}
	s.moves(int(st.Row))
	r.Postponed = true
	visit(step, s)
	// The last row of its range leaves the range.
	if of := x.from.covering(r.Place); of != nil && of.Upto == r.Place && r.Place < x.last() {
		r.Place++
		step.More = ", which leaves the range"
		visit(step, s)
	}
}

// passes: the row is about to leave the available_at that an outcome of the process set.
func (s *RangeState) passes(p, row int) {
	if !s.Peers[p].Hand[row].Shown {
		return
	}
	for p := range s.Peers {
		d := &s.Peers[p].Hand[row]
		d.Again = d.Again || d.Names && d.Title != leaseTitle
	}
	if l := &s.Late; int(l.Row) == row && l.What == doMark && l.Title != leaseTitle {
		l.Again = l.Again || l.Names
	}
	d := &s.Peers[p].Hand[row]
	d.Shown, d.Past, d.Again = false, true, false
}

// claimAnswer hands the row over (outbox/tracker.go): to the delivery in hand, or as a delivery.
func (x *rangeSteps) claimAnswer(p int) {
	c := x.from.Peers[p].Claim
	if c.Row == 0 {
		return
	}
	row := int(c.Row) - 1
	x.take(RangeStep{Process: p, Row: row, What: claimHeard}, func(s *RangeState) {
		n := &s.Peers[p]
		d := &n.Hand[row]
		n.Claim = RowClaim{}
		if d.Phase == none || d.Storing && d.Shown && !d.Outcome.final() {
			*d = Holding{
				Phase: queued, Title: leaseTitle, Names: c.Names, Seen: c.Seen, Counts: c.Counts, Outlived: c.Outlived, Old: c.Old,
			}
			return
		}
		if x.Broken == CopiesAreDelivered {
			*d = Holding{Phase: queued, Title: leaseTitle, Names: c.Names, Seen: c.Seen, Twice: d.Phase == running}
			return
		}
		if d.Phase == queued {
			d.Outlived = c.Outlived
			if x.Broken != CopiesKeepAttempts {
				d.Seen, d.Counts = c.Seen, c.Counts
			}
		}
		d.Title, d.After, d.Names, d.Handed, d.Unsure = leaseTitle, 0, c.Names, d.Phase == marking, false
	})
	x.fault(RangeStep{Process: p, Row: row, What: claimUnheard}, func(s *RangeState) {
		s.Peers[p].Claim = RowClaim{}
		s.Peers[p].Releases[row] = c.Names
		s.unsure(p, c.Suspect, c.After)
	})
}

// lease renews a lease, or gives it back (outbox/internal/leases).
func (x *rangeSteps) lease(p, row int) {
	d, r := x.from.Peers[p].Hand[row], x.from.Rows[row]
	if d.leased() && r.Expired {
		x.take(RangeStep{Process: p, Row: row, What: renewsRow}, func(s *RangeState) { s.Rows[row].Expired = false })
	}
	if x.from.Peers[p].Releases[row] {
		x.take(RangeStep{Process: p, Row: row, What: releasesRow, Changed: true, Lawful: true}, func(s *RangeState) { s.leaseEnds(row) })
	}
}

// lateRow carries out a statement that was given up, or loses it. The lease of a late claim is given
// back, because its process gave the claim up.
func (x *rangeSteps) lateRow() {
	st := x.from.Late
	if st.What == nothing {
		return
	}
	x.take(RangeStep{Process: -1, Row: -1, What: neverArrives}, func(s *RangeState) { s.Late = LateRow{} })
	if st.What == doMark {
		s := x.from
		step := x.executeMark(&s, st)
		if h := &s.Peers[st.Process].Hand[st.Row]; step.Changed && !st.Orphan && h.Storing && !h.Outcome.final() {
			h.Shown = true
		}
		s.Late = LateRow{}
		if step.More += ", late"; step.Changed {
			x.emit(step, false, s)
		}
		return
	}
	for row := range int(x.Rows) {
		if row != int(st.Row) && st.What != doSuspect {
			continue
		}
		of := st
		of.Row = uint8(row)
		x.execute(of, func(step RangeStep, s RangeState) {
			s.Late = LateRow{}
			s.Peers[st.Process].Releases[row] = !st.Orphan
			step.More += ", late"
			x.emit(step, false, s)
		})
	}
}
