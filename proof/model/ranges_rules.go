package model

// The ways to break the model of the ranges. The first ones are parts of the protocol as it was drawn,
// or as it was first written.
const (
	SuspectsAtOnce     Mutation = "suspects are claimed without taking their range over"
	ClaimsLate         Mutation = "a claim of suspects has no deadline"
	DropUnsure         Mutation = "a suspect range is dropped after a claim without an answer"
	RenewsUnsure       Mutation = "a suspect range is renewed after a claim without an answer"
	SuspectsSkipped    Mutation = "a suspect range is dropped although a row was skipped"
	DoubtsAreDropped   Mutation = "a range that was taken over without an answer is dropped"
	DropsAreReadAgain  Mutation = "a range is read again after a drop without an answer"
	OutcomesGivenUp    Mutation = "an event whose mark got no answer leaves its range"
	CopiesKeepAttempts Mutation = "an event in the queue keeps its attempts when its process claims it again"
	CopiesOfRetries    Mutation = "a retry that took effect goes on under the lease of a suspect"

	MarkWithoutPlace    Mutation = "a mark without a lease does not name available_at"
	MarkWithoutNoLease  Mutation = "a mark without a lease changes leased rows, and a claim of suspects leaves available_at as it is"
	SuspectsWithoutMove Mutation = "a claim of suspects leaves available_at as it is"
	TakeoverOfFree      Mutation = "a claim of expired leases takes rows without a lease"
	BeginAfterEnd       Mutation = "a delivery begins after the end of its right"
	BeginInAnyRange     Mutation = "a delivery begins while any range of its process lasts"
	RangeOverExpired    Mutation = "a range is claimed over an expired range"
	SetWithoutVersion   Mutation = "the ledger is set without the version"
	DropInHand          Mutation = "a range is dropped while an event is in hand"
	PassNeverOver       Mutation = "the own place never starts over"
	PlaceBeforeSet      Mutation = "the own place goes on before the range is set"
	SuspectsCounted     Mutation = "all suspects count an attempt"
	DeathsNamedOnce     Mutation = "the takeover of a suspect's lease has a name of its own"
	DeliversAsRead      Mutation = "a postponed row is delivered without a lease"
	CancelsAny          Mutation = "a row that was due at once is cancelled"
	DeathsForgotten     Mutation = "the takeover of a suspect's lease does not count the death before"
)

// RenewsExpired is another protocol, which breaks no rule: a compare-and-set may renew a range that
// nobody has taken over.
const RenewsExpired Mutation = "a renewal has no deadline"

// The rules of the ranges.
const (
	NoOverlap  = "ranges never overlap"
	PassedOver = "no row is passed over"
	Innocent   = "suspects count no attempt"
	TakenBack  = "a cancelled event is not delivered"
	Deaths     = "a poison event kills few processes"
)

func (m Ranges) rules() []Rule[RangeState, RangeStep] {
	return []Rule[RangeState, RangeStep]{
		{NoOverlap, "Two ranges of the ledger have no place in common.", func(_ RangeState, _ RangeStep, to RangeState) bool {
			for i, r := range to.Ledger {
				for _, other := range to.Ledger[i+1:] {
					if r.Holder != 0 && other.Holder != 0 && r.After < other.Upto && other.After < r.Upto {
						return false
					}
				}
			}
			return true
		}},
		{OnlyCommitted, "A listener gets an event only after its transaction committed.", func(from RangeState, step RangeStep, _ RangeState) bool {
			return step.What != beginsRow || from.Rows[step.Row].Committed
		}},
		{DoneDelivered, "A row is DONE only after a listener succeeded.", func(_ RangeState, _ RangeStep, to RangeState) bool {
			for _, r := range to.Rows {
				if r.Status == Done && !r.Delivered && !r.Cancelled {
					return false
				}
			}
			return true
		}},
		{OneHolder, "Two listeners have an event at the same time only if one of them outlived its right.", func(_ RangeState, step RangeStep, to RangeState) bool {
			return step.What != beginsRow || to.running(step.Row, func(d Holding) bool { return !d.Outlived }) <= 1
		}},
		{OneInProcess, "One process has an event with one listener at a time.", func(_ RangeState, step RangeStep, to RangeState) bool {
			return step.What != beginsRow || !to.Peers[step.Process].Hand[step.Row].Twice
		}},
		{NoDuplicate, "Without a fault an event that a listener has, or had with success, is not delivered again.", func(from RangeState, step RangeStep, to RangeState) bool {
			all := func(Holding) bool { return true }
			return step.What != beginsRow || from.Faults > 0 || m.Poison || !from.Rows[step.Row].Delivered && to.running(step.Row, all) == 1
		}},
		{Attempts, "An event is delivered at most MaxAttempts times, twice if that is 1, and once more for each lost range from which it was taken.", func(_ RangeState, _ RangeStep, to RangeState) bool {
			for _, r := range to.Rows {
				if r.Begun > max(m.MaxAttempts, 2)+r.Lost {
					return false
				}
			}
			return true
		}},
		{Deaths, "An event that kills each process that delivers it kills at most MaxAttempts processes, two if that is 1.", func(_ RangeState, _ RangeStep, to RangeState) bool {
			return !m.Poison || to.Rows[0].Begun <= max(m.MaxAttempts, 2)
		}},
		{Innocent, "Only the takeover of an expired lease counts an attempt.", func(_ RangeState, step RangeStep, _ RangeState) bool {
			return !step.Counted || step.What == takesOver
		}},
		{Fence, "A statement changes a row only under its lease, or without a lease while the range in which the row was read is in the ledger. A claim takes over what expired.", func(_ RangeState, step RangeStep, _ RangeState) bool {
			return !step.Changed || step.Lawful
		}},
		{NotForgotten, "While its process lives, a lease that has not expired belongs to a delivery, a claim, or a release.", func(_ RangeState, _ RangeStep, to RangeState) bool {
			for row, r := range to.Rows {
				if !to.Left && r.Status.pending() && r.Lease != 0 && !r.Expired && !to.known(row) {
					return false
				}
			}
			return true
		}},
		{TakenBack, "An event that a transaction cancelled is in no listener's hands then, and no delivery of it begins later, unless the delivery outlived its right.", func(from RangeState, step RangeStep, to RangeState) bool {
			switch step.What {
			case cancels:
				return to.running(step.Row, func(d Holding) bool { return !d.Outlived }) == 0
			case beginsRow:
				return !from.Rows[step.Row].Cancelled || from.Peers[step.Process].Hand[step.Row].Outlived
			default:
				return true
			}
		}},
		{PassedOver, "A pass that is over left no row that was free from its beginning.", func(from RangeState, step RangeStep, _ RangeState) bool {
			return step.What != passesOver || from.Peers[step.Process].Waits == 0
		}},
	}
}

// known reports whether a process has the row's lease.
func (s *RangeState) known(row int) bool {
	for _, n := range s.Peers {
		if d := n.Hand[row]; d.leased() || int(n.Claim.Row) == row+1 && n.Claim.Names || n.Releases[row] {
			return true
		}
	}
	return false
}

// running counts the listeners that have the event.
func (s *RangeState) running(row int, which func(d Holding) bool) (n int) {
	for _, p := range s.Peers {
		if p.Hand[row].Phase == running && which(p.Hand[row]) {
			n++
		}
	}
	return n
}
