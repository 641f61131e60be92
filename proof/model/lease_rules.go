package model

import "slices"

// The ways to break the model of leases.
const (
	MarkWithoutFence        Mutation = "a mark does not name its lease"
	ReleaseWithoutName      Mutation = "a release does not name its lease"
	RenewWithoutName        Mutation = "a renewal does not name its lease"
	NamesPerOwner           Mutation = "a lease is named by its owner alone"
	ClaimWithoutStatus      Mutation = "a claim takes rows of any status"
	ClaimsAreForgotten      Mutation = "a claim that fails is not given back"
	LeaseAfterMarkForgotten Mutation = "a lease that the node got after the mark is not given back"
	TakeoverWithoutExpiry   Mutation = "a claim takes over a lease that has not expired"
	TakeoverUncounted       Mutation = "a takeover counts no attempt"
	AttemptsLowered         Mutation = "a retry makes the attempts fewer than claims counted"
	NoTakeover              Mutation = "an expired lease is never taken over"
	NeverExhausted          Mutation = "an event that had all of its deliveries is delivered again"
	HotBeforeCommit         Mutation = "the hot path delivers before the commit"
	HotInDoubt              Mutation = "the hot path delivers after a COMMIT that is in doubt"
	HotWithoutLease         Mutation = "the hot path delivers although the transaction outlived its lease"
	LeasesAreNotRenewed     Mutation = "leases are not renewed"
	CopiesAreDelivered      Mutation = "the tracker lets copies of an event in hand pass"
	FailuresAreDone         Mutation = "a failed delivery is marked done"
)

// The rules of the leases.
const (
	OnlyCommitted = "only committed"
	DoneDelivered = "done is delivered"
	OneHolder     = "one holder"
	OneInProcess  = "one in a process"
	NoDuplicate   = "no duplicate without a fault"
	Attempts      = "attempts"
	Fence         = "fence"
	NotForgotten  = "no lease is forgotten"
)

// LeaseRule is a rule of the leases.
type LeaseRule = Rule[State, Event]

func (m Leases) rules() []LeaseRule {
	return []LeaseRule{
		{OnlyCommitted, "A listener gets an event only after its transaction committed.", func(from State, e Event, _ State) bool {
			return e.Kind != Began || from.Tx == committed
		}},
		{DoneDelivered, "A row is DONE only after a listener succeeded.", func(_ State, _ Event, to State) bool {
			return to.Row.Status != Done || to.Delivered
		}},
		{OneHolder, "Two listeners have an event at the same time only if one of them outlived its lease.", func(_ State, e Event, to State) bool {
			return e.Kind != Began || to.running(func(d *Delivery) bool { return !d.Outlived }) <= 1
		}},
		{OneInProcess, "One process has an event with one listener at a time.", func(_ State, e Event, to State) bool {
			hand := to.Nodes[e.Node].Hand
			return e.Kind != Began || hand[0].Phase != running || hand[1].Phase != running
		}},
		{NoDuplicate, "Without a fault an event that a listener has, or had with success, is not delivered again.", func(from State, e Event, to State) bool {
			all := func(*Delivery) bool { return true }
			return e.Kind != Began || from.Faults > 0 || !from.Delivered && to.running(all) == 1
		}},
		{Attempts, "An event is delivered at most MaxAttempts times, deaths included; twice if that is 1.", func(_ State, _ Event, to State) bool {
			return to.Begun <= max(m.MaxAttempts, 2)
		}},
		{Fence, "A statement changes no row under a lease that it does not name. A claim takes over what expired.", func(from State, e Event, _ State) bool {
			row := from.Row
			switch e.Kind {
			case Marked, Released, Renewed:
				return !e.Changed || row.Lease == e.Lease
			case Claimed:
				return row.Lease == 0 || row.Expired
			default:
				return true
			}
		}},
		{NotForgotten, "While its process lives, a lease that has not expired belongs to a delivery, a claim, or a release.", func(_ State, _ Event, to State) bool {
			return to.Crashes || to.Tx != committed || !to.Row.Status.pending() || to.Row.Lease == 0 || to.Row.Expired || to.known(to.Row.Lease)
		}},
	}
}

// known reports whether a process has this lease.
func (s *State) known(lease Name) bool {
	for _, n := range s.Nodes {
		given := slices.ContainsFunc(n.Releases[:], func(r Release) bool { return r.Name == lease })
		if given || n.Claim.Name == lease || n.Hand[0].Lease == lease || n.Hand[1].Lease == lease {
			return true
		}
	}
	return s.Writer == waits && s.Lease == lease
}

// running counts the listeners that have the event.
func (s *State) running(which func(d *Delivery) bool) (n int) {
	s.inHand(func(_ int, d *Delivery) {
		if d.Phase == running && which(d) {
			n++
		}
	})
	return n
}
