package model

// Name is the name of a lease: a number, and in the lowest bit the node. Zero is no lease.
type Name uint8

func (n Name) node() int { return int(n & 1) }

// Status is the status of a row.
type Status uint8

// The statuses of a row.
const (
	New Status = iota
	Done
	Retry
	Dead
)

func (s Status) pending() bool { return s == New || s == Retry }

// Tx is where the transaction that wrote the row is, according to the database.
type Tx uint8

const (
	unwritten Tx = iota
	open
	committed
	rolledBack
)

// Writer is the knowledge that the node that wrote has of the transaction.
type Writer uint8

const (
	waits  Writer = iota // for the answer to COMMIT
	told                 // how it ended
	doubts               // nothing is known of the COMMIT, or the process died
)

// Row is the row of the event.
type Row struct {
	Status   Status
	Attempts uint8
	Lease    Name // locked_by
	Expired  bool // locked_at is longer ago than LeaseDuration
	// Next is the first lease of the delivery whose outcome available_at shows. Zero: no delivery.
	Next Name
}

// Phase is where a delivery is.
type Phase uint8

const (
	none     Phase = iota
	reserved       // the transaction is open
	queued
	running
	answered // the delivery has an outcome that is not stored
	marking  // the statement was carried out, the answer is not there yet
)

// Outcome is the outcome that is stored for a delivery.
type Outcome uint8

// The outcomes.
const (
	noOutcome Outcome = iota
	OutcomeDone
	OutcomeRetry
	OutcomeDead
	OutcomeDeferred
	outcomeReleased // by a listener that the shutdown cut off; nothing is marked
)

func (o Outcome) final() bool { return o == OutcomeDone || o == OutcomeDead }

// Delivery is a delivery in hand (outbox/delivery.go, tracker.go).
type Delivery struct {
	Phase   Phase
	Lease   Name  // the lease under which the delivery goes on
	Born    Name  // the lease under which the delivery began
	Seen    uint8 // the attempts that the envelope shows
	Outcome Outcome
	Storing bool // a statement with the outcome was begun
	// Of the statement whose answer is outstanding: the lease it named, and whether it
	// changed the row.
	Under   Name
	Changed bool
	// Notes of the checker. Outlived: the lease expired meanwhile. Counted: State.Begun counts the
	// delivery. Old: the delivery was in hand before the event was replayed.
	Outlived, Counted, Old bool
}

// Claim is a claim that was carried out and whose answer is outstanding (outbox/poller_claim.go).
type Claim struct {
	Name     Name
	Attempts uint8 // that the claim returned
	// Shown: available_at is the time that the outcome of the delivery in hand sets.
	Shown bool
	// Notes of the checker, for the delivery.
	Outlived, Old bool
}

// Release is a lease that is given back (outbox/internal/leases).
type Release struct {
	Name  Name
	Doubt bool // the row may not be there yet
}

// Node is the memory of a process, as far as it concerns the event.
type Node struct {
	// Hand has the delivery that the tracker knows, and an older delivery that the tracker has
	// forgotten in favor of the first.
	Hand     [2]Delivery
	Claim    Claim
	Releases [3]Release
}

// Verb is the purpose of a statement.
type Verb uint8

const (
	noStatement Verb = iota
	verbMark
	verbRelease
	verbClaim
)

// Statement is a statement that the client gave up and that the server may still carry out.
type Statement struct {
	Verb     Verb
	Lease    Name
	Outcome  Outcome
	Attempts uint8
	Born     Name
}

// State is everything that the model knows.
type State struct {
	Row    Row
	Tx     Tx
	Writer Writer // of node 0
	Lease  Name   // under which the row was inserted
	Nodes  [2]Node
	Late   Statement
	Names  uint8 // given so far

	// Notes of the checker. Delivered: a listener succeeded. Begun: deliveries of the event that
	// was taken in hand since the insert or the replay, except for deliveries that were deferred or
	// that a shutdown cut off.
	Delivered bool
	Begun     uint8
	Faults    uint8
	Replays   uint8
	Crashes   bool // a process died
}

// names lists every name that the state holds.
func (s *State) names(visit func(*Name)) {
	visit(&s.Row.Lease)
	visit(&s.Row.Next)
	visit(&s.Lease)
	for i := range s.Nodes {
		n := &s.Nodes[i]
		for j := range n.Hand {
			visit(&n.Hand[j].Lease)
			visit(&n.Hand[j].Born)
			visit(&n.Hand[j].Under)
		}
		visit(&n.Claim.Name)
		for j := range n.Releases {
			visit(&n.Releases[j].Name)
		}
	}
	visit(&s.Late.Lease)
	visit(&s.Late.Born)
}

// name gives a lease a unique name (outbox/internal/leases).
func (s *State) name(node int) Name {
	s.Names++
	return Name(s.Names)<<1 | Name(node)
}
