package model

import "fmt"

// Kind is the kind of a step.
type Kind uint8

// The kinds of steps. The kinds up to Internal can be seen from outside: a trace has them.
const (
	Wrote      Kind = iota + 1 // the row was inserted, under Lease if not zero
	Committing                 // COMMIT takes effect, not before this
	Committed                  // the writer was told so
	RolledBack                 // the same
	InDoubt                    // the writer was not told
	Claimed                    // Changed; Attempts as the row shows them then; Counted if it was taken over
	Began                      // a listener; Attempts as the envelope shows them
	Ended                      // a listener, with Outcome
	Marked                     // Outcome, Lease, Changed
	Released                   // Lease, Changed
	Renewed                    // Lease
	GaveUp                     // the node gave up a statement under Lease, which was not carried out
	AnswerLost                 // to the statement of the node under Lease
	Expired                    // Lease
	Replayed                   // a DEAD row
	Crashed                    // the node
	Internal
)

// The internal steps, in words.
const (
	lateRollback  = "the transaction whose COMMIT is in doubt rolls back"
	claimAnswered = "the claim's answer arrives"
	claimCopy     = "the claim's answer arrives: the delivery in hand goes on under the new lease"
	exhausted     = "the event had all of its deliveries, it is to die"
	letGo         = "the node closes and gives the event back"
	markAnswered  = "the mark's answer arrives"
	releaseOver   = "the lease needs no release any more"
	lateLost      = "the statement that was given up never arrives"
)

// Event is a step of the model of leases, as a trace shows it.
type Event struct {
	Kind     Kind
	Node     int
	Lease    Name
	Outcome  Outcome
	Attempts uint8
	Changed  bool // the statement changed the row
	Counted  bool // the claim counted an attempt: the claim took the row over
	Late     bool // the client had given up the statement before
	Text     string
}

func (e Event) String() string {
	lease, who := fmt.Sprint("lease ", e.Lease>>1), fmt.Sprint("node ", e.Node)
	late := ""
	if e.Late {
		late = ", late"
	}
	changed := ": the row is left alone"
	if e.Changed {
		changed = ": the row changes"
	}
	switch e.Kind {
	case Wrote:
		if e.Lease == 0 {
			return who + " inserts the row without a lease"
		}
		return who + " inserts the row under " + lease
	case Committing:
		return "COMMIT takes effect"
	case Committed:
		return who + " learns that the transaction committed"
	case RolledBack:
		return who + " learns that the transaction rolled back"
	case InDoubt:
		return who + " learns nothing of the COMMIT"
	case Claimed:
		if e.Counted {
			return fmt.Sprintf("%s takes the row over under %s, attempts %d%s", who, lease, e.Attempts, late)
		}
		return fmt.Sprintf("%s claims the row under %s, attempts %d%s", who, lease, e.Attempts, late)
	case Began:
		return fmt.Sprintf("%s: the listener begins, attempts %d", who, e.Attempts)
	case Ended:
		return fmt.Sprintf("%s: the listener ends, outcome %s", who, e.Outcome)
	case Marked:
		return fmt.Sprintf("%s marks %s under %s%s%s", who, e.Outcome, lease, late, changed)
	case Released:
		return who + " gives back " + lease + late + changed
	case Renewed:
		return who + " renews " + lease
	case AnswerLost:
		return who + " gets no answer under " + lease
	case GaveUp:
		return who + " gives up a statement under " + lease + ", which was not carried out"
	case Expired:
		return lease + " expires"
	case Replayed:
		return "the dead event is replayed"
	case Crashed:
		return who + " dies and starts again"
	default:
		return fmt.Sprintf("%s: %s", who, e.Text)
	}
}

func (o Outcome) String() string {
	return [...]string{"none", "done", "retry", "dead", "deferred", "released"}[o]
}
