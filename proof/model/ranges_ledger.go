package model

// ledger is what a process does with the ledger (outbox/ranges.go, poller_ranges.go,
// sqlstore/ranges.go). Renewals, and drops alone, do not wait for the poller.
func (x *rangeSteps) ledger(p int) {
	x.drop(p)
	polls := x.from.Peers[p].Claim.Row == 0
	for i := range x.from.Ledger {
		r := x.from.Ledger[i]
		if r.Holder == 0 {
			continue
		}
		if polls && x.reads(p, r) {
			x.read(p, r)
		}
		if int(r.Holder) == p+1 && r.Known {
			x.renew(p, r)
		}
		if polls {
			x.suspects(p, r)
		}
	}
	if polls {
		x.add(p)
		if x.from.Peers[p].Place > 0 && !x.gaps(p, func(uint8, uint8) {}) && !x.unread(p) && x.Broken != PassNeverOver {
			x.take(RangeStep{Process: p, Row: -1, What: passesOver}, func(s *RangeState) { s.Peers[p].Place = 0 })
		}
	}
}

// set replaces the ledger by compare-and-set, without the ranges of the process that are finished or
// left. If the answer is lost, the statement is carried out at once, later, or never.
func (x *rangeSteps) set(p int, l LateSet) {
	l.Process, l.Drops = uint8(p), x.drops(p, l)
	more := places(l.After, l.Upto)
	if l.What == doDrop {
		more = ""
	}
	x.take(RangeStep{Process: p, Row: -1, What: l.What.String(), More: more + x.dropped(l)}, func(s *RangeState) { x.replace(s, l, true) })
	if x.from.Set.What != nothing {
		return
	}
	x.fault(RangeStep{Process: p, Row: -1, What: l.What.String(), More: more + x.dropped(l) + ", and gets no answer"}, func(s *RangeState) {
		s.Set = l
		if x.Broken == PlaceBeforeSet && l.What == doAdd {
			s.Peers[p].Place = l.Upto
		}
		for i := range s.Ledger { // the finished ranges may be gone
			r := &s.Ledger[i]
			if l.drops(*r) && r.Known && (r.Suspect || x.Broken != DropsAreReadAgain) {
				s.untitle(*r)
				*r = Range{After: r.After, Upto: r.Upto, Holder: r.Holder, Expired: r.Expired, Suspect: r.Suspect, Doubt: x.left(*r)}
			}
		}
	})
}

// left reports whether a range that its process does not know of is dropped by the next set.
func (x *rangeSteps) left(r Range) bool { return !r.Suspect || x.Broken == DoubtsAreDropped }

func (l LateSet) drops(r Range) bool { return r.Holder == l.Process+1 && l.Drops&(1<<r.After) != 0 }

// drops are the ranges that a set drops.
func (x *rangeSteps) drops(p int, l LateSet) (drops uint8) {
	for _, r := range x.from.Ledger {
		if int(r.Holder) != p+1 || l.What != doAdd && l.What != doDrop && l.After == r.After {
			continue
		}
		finished := r.Known && (x.from.finished(r) || x.Broken == DropInHand && !r.Suspect)
		if finished || r.Doubt {
			drops |= 1 << r.After
		}
	}
	return drops
}

// replace carries a set out. Without an answer, the process counts a range that the set added as left,
// and lets a range that the set took over expire.
func (x *rangeSteps) replace(s *RangeState, l LateSet, answered bool) {
	for i := range s.Ledger {
		if r := &s.Ledger[i]; l.drops(*r) {
			s.untitle(*r)
			*r = Range{}
		}
	}
	r := Range{After: l.After, Upto: l.Upto, Holder: l.Process + 1, Known: answered}
	switch l.What {
	case doAdd:
		r.Doubt = !answered && !l.Orphan
		s.Ledger[s.room()] = r
	case doTake:
		was := s.at(l.After)
		s.untitle(*was)
		r.Suspect = true
		r.Doubt = !answered && !l.Orphan && x.left(r)
		*was = r
	case doRenew:
		x.renewed(s.at(l.After), answered, s)
	default:
	}
	if x.Broken != SetWithoutVersion {
		s.Set = LateSet{}
	}
}

// room is the index of an empty place in the ledger; negative: there is none.
func (s *RangeState) room() int {
	for i, r := range s.Ledger {
		if r.Holder == 0 {
			return i
		}
	}
	return -1
}

// renewed: the range lasts again.
func (x *rangeSteps) renewed(r *Range, answered bool, s *RangeState) {
	if r.Expired = false; answered {
		r.Over = false
	}
	for row := range s.Peers[r.Holder-1].Hand {
		if d := &s.Peers[r.Holder-1].Hand[row]; d.Title == rangeTitle && d.After == r.After && d.Names && r.Known {
			d.Outlived = false
		}
	}
}

func places(after, upto uint8) string {
	return string([]byte{' ', '(', '0' + after, ',', ' ', '0' + upto, ']'})
}

// dropped says which ranges a set drops.
func (x *rangeSteps) dropped(l LateSet) (text string) {
	for _, r := range x.from.Ledger {
		if l.drops(r) {
			text += places(r.After, r.Upto)
		}
	}
	if text != "" && l.What != doDrop {
		text = ", and drops" + text
	}
	return text
}

// gaps visits the ranges that a process may add: from its own place, or the end of the range before,
// up to a free row of the first gap that has a free row.
func (x *rangeSteps) gaps(p int, visit func(after, upto uint8)) (found bool) {
	after := x.from.Peers[p].Place
	for place := after + 1; place <= x.last(); place++ {
		r := x.from.covering(place)
		if r != nil && (!r.Expired || x.Broken != RangeOverExpired) {
			if found {
				return true
			}
			after = place
			continue
		}
		for _, row := range x.from.Rows {
			if row.free() && row.Place == place {
				found = true
				visit(after, place)
				break
			}
		}
	}
	return found
}

func (x *rangeSteps) add(p int) {
	if x.from.room() >= 0 {
		x.gaps(p, func(after, upto uint8) { x.set(p, LateSet{What: doAdd, After: after, Upto: upto}) })
	}
}

// drop gives up the ranges of a process that are finished or left.
func (x *rangeSteps) drop(p int) {
	if x.drops(p, LateSet{What: doDrop}) != 0 {
		x.set(p, LateSet{What: doDrop})
	}
}

// renew renews the right to a range of which an event is in hand, or whose suspects the process claims.
func (x *rangeSteps) renew(p int, r Range) {
	gone := r.Expired && x.Broken != RenewsExpired || r.Unsure && x.Broken != RenewsUnsure
	if !gone && !x.from.finished(r) && (r.Over || x.from.Set.What != nothing || x.drops(p, LateSet{What: doDrop}) != 0) {
		x.set(p, LateSet{What: doRenew, After: r.After, Upto: r.Upto})
	}
}

// read takes the rows of a range in hand.
func (x *rangeSteps) read(p int, r Range) {
	x.take(RangeStep{Process: p, Row: -1, What: readsRange, More: places(r.After, r.Upto)}, func(s *RangeState) {
		s.at(r.After).Read = true
		if x.Passes && !x.gapBefore(p, r) {
			s.Peers[p].Place = r.Upto
		}
		for row := range s.Rows {
			if d := &s.Peers[p].Hand[row]; r.has(s.Rows[row].Place) && s.Rows[row].free() && d.Phase == none && (!s.Rows[row].Postponed || x.Broken == DeliversAsRead) {
				*d = Holding{Phase: queued, Title: rangeTitle, After: r.After, Names: true, Seen: s.Rows[row].Attempts}
			}
		}
	})
}

// reads reports whether a process reads a range of its own: after it added the range, and again when rows came
// into the range.
func (x *rangeSteps) reads(p int, r Range) bool {
	if !r.readable(p) || r.Upto <= x.from.Peers[p].Place {
		return false
	}
	for row, of := range x.from.Rows {
		if of.free() && r.has(of.Place) && x.from.Peers[p].Hand[row].Phase == none {
			return true
		}
	}
	return !r.Read
}

// gapBefore reports whether there is something to read between the place of the pass and a range.
func (x *rangeSteps) gapBefore(p int, before Range) bool {
	for row, r := range x.from.Rows {
		if r.free() && x.from.Peers[p].Place < r.Place && r.Place <= before.After {
			of := x.from.covering(r.Place)
			if of == nil || of.readable(p) && x.from.Peers[p].Hand[row].Phase == none {
				return true
			}
		}
	}
	return false
}

// unread reports whether a range of the process, behind the place of its pass, has rows to read.
func (x *rangeSteps) unread(p int) bool {
	for _, r := range x.from.Ledger {
		if x.reads(p, r) {
			return true
		}
	}
	return false
}

// suspects is what a process does with an expired range, and with one that it took over.
func (x *rangeSteps) suspects(p int, r Range) {
	if r.Expired && x.Broken != SuspectsAtOnce {
		x.set(p, LateSet{What: doTake, After: r.After, Upto: r.Upto})
	}
	if r.Expired && x.Broken == SuspectsAtOnce && x.nothingIn(r) {
		x.take(RangeStep{Process: p, Row: -1, What: dropsRange, More: places(r.After, r.Upto)}, func(s *RangeState) {
			s.untitle(r)
			*s.at(r.After) = Range{}
			s.Set = LateSet{}
		})
	}
	taken := int(r.Holder) == p+1 && r.Suspect && r.Known
	if taken && !r.Read && (!r.Unsure || x.Broken == DropUnsure) && (x.nothingIn(r) || x.Broken == SuspectsSkipped) {
		x.take(RangeStep{Process: p, Row: -1, What: findsNone}, func(s *RangeState) { s.at(r.After).Read = true })
	}
}

// nothingIn reports whether a range has no free row.
func (x *rangeSteps) nothingIn(r Range) bool {
	for _, row := range x.from.Rows {
		if row.free() && r.has(row.Place) {
			return false
		}
	}
	return true
}

// lateSet carries out a compare-and-set that was given up, or loses it.
func (x *rangeSteps) lateSet() {
	l := x.from.Set
	if l.What == nothing {
		return
	}
	x.take(RangeStep{Process: -1, Row: -1, What: neverArrives}, func(s *RangeState) { s.Set = LateSet{} })
	r := x.from.at(l.After)
	if l.What == doAdd && x.from.room() < 0 || l.What != doAdd && l.What != doDrop && r == nil {
		return
	}
	more := places(l.After, l.Upto)
	if l.What == doDrop {
		more = ""
	}
	x.take(RangeStep{Process: int(l.Process), Row: -1, What: l.What.String(), More: more + x.dropped(l) + ", late"}, func(s *RangeState) {
		s.Set = LateSet{}
		x.replace(s, l, false)
	})
}
