package outbox

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/outboxkit/outbox-go/outbox/internal/reason"
)

// delivery is an attempt at an event, from the queue until the outcome is stored.
type delivery struct {
	env      *Envelope // the row
	only     *only     // the single listener that the row is for; nil: all
	hot      bool      // the event came by the hot queue
	takeover bool      // the event may have been in the hands of a process that died
	counted  bool      // the last delivery, during which a process died, is an attempt
	term     int64     // the hold under which the event was taken in hand; see [hold.Hold]

	// The events before and behind this event in its run; see [OrderedByKey].
	before, behind *delivery

	// These belong to the tracker.
	state      deliveryState
	answered   bool        // the listener has returned
	lease      string      // the name of the row's lease; empty: none
	until      time.Time   // the lease surely lasts until then; zero: not checked
	right      *right      // to the range of the row, if the row has no lease
	claimed    claimed     // by the last claim of the row while the event was in hand
	completion *completion // the listener's own transaction; see [Writer.Complete]

	ctx     deliveryContext // the listener's
	batcher *batcher        // nil: the listener gets no batches
	shares  bool            // the delivery has one of the [SharedWorkers]
	inShare bool            // the delivery counts in the share of its lane
	probe   bool            // the delivery is the first of the kind after an automatic pause
	waiting *waiting        // the event waits because of the key; nil: it need not
	keyed   time.Time       // when the delivery began, if the key has bounds
	place   int32           // of the kind in the [Registry], atomic: an interceptor may call the listener late; zero: not known

	// The outcome; see [dispatcher.decide].
	outcome  Outcome
	next     time.Time // when the event is due again
	reason   string    // last_error
	attempts int       // the attempts that the row counts from then on; zero: as before
	err      error
	panicked *PanicError // nil when err is no panic
	expired  bool        // err is errExpired
	answers  *answers    // of several listeners; nil in the delivery to a single listener
	// ended is the outcome of a split event's own row: OutcomeDone or OutcomeDelete.
	ended Outcome
	// completed: the listener's own transaction has stored the outcome.
	completed bool
	// stuck: the database refuses the outcome; see [completer.markAll].
	stuck bool
	// skipped: the database left the row as it is, although the outcome should have changed it.
	skipped bool
	// repeated: a statement with the outcome failed, and the database may have
	// carried it out all the same.
	repeated bool
	// rowless: the statement found no row.
	rowless bool
}

// waiting is why and until when an event waits because of the key.
type waiting struct {
	due    time.Time
	reason string
}

// right is the right of this process to deliver the rows of a range. The tracker's mu guards the
// fields behind Range.
type right struct {
	Range
	until     time.Time // the right surely lasts until then, by this process's clock
	inHand    int       // events of the range
	gaveBack  bool      // an event of the range left without an outcome
	abandoned bool      // the right is left to expire
	suspects  bool      // the rows were another process's, and get leases before they are delivered
}

// claimed is what a claim of an event in hand found.
type claimed struct {
	attempts int  // of the row
	counted  bool // as in [delivery]
}

// deliveryState is where a delivery is:
//
//	reserved ──▶ inHand ──▶ storing
//	the transaction is open   queued or running   its outcome is on the way
type deliveryState uint8

const (
	untracked deliveryState = iota // another delivery of the event is in hand, or none
	reserved
	inHand
	storing
)

func (d *delivery) id() string { return d.env.EventID }

// mark is the outcome for the store.
func (d *delivery) mark() Mark {
	m := Mark{EventID: d.id(), Lease: d.lease, AvailableAt: d.next, Error: d.reason, Attempts: d.attempts}
	if d.right != nil {
		m.DueAt = d.env.AvailableAt
	}
	return m
}

// Delivery is the result of delivering an event.
type Delivery struct {
	// Envelope is the event as its listener got it.
	Envelope Envelope
	// Status is the status that the row gets. NEW means deferred, or given back because
	// the dispatcher shut down. DONE with an Err means that an expired event was dropped; see [Rules].
	Status Status
	// NextAt is when a RETRY or deferred event is due again.
	NextAt time.Time
	// Err is the error that the outermost interceptor or the listener returned, or nil.
	Err error
	// Listener is the name of the listener whose own row was delivered; see [Named].
	// Empty: the event's own row.
	Listener string
	// Rows are the rows of the event's several listeners that are not done: the status
	// of the event's own row is DONE, and each of these listeners has a separate row.
	Rows []Delivery
}

func (d *delivery) public() Delivery {
	p := Delivery{Envelope: *d.event(), Err: d.err, Listener: d.listener()}
	switch d.outcome {
	case OutcomeSplit:
		p.Status = StatusDone
		for _, row := range d.rows() {
			p.Rows = append(p.Rows, row.public())
		}
	case OutcomeDone, OutcomeDelete:
		p.Status = StatusDone
	case OutcomeRetry:
		p.Status, p.NextAt = StatusRetry, d.next
	case OutcomeDead:
		p.Status = StatusDead
	case OutcomeDeferred:
		p.Status, p.NextAt = StatusNew, d.next
	case OutcomeReleased:
		p.Status = StatusNew
	}
	return p
}

// A run is some events of one key, in order, under one lease. A single worker delivers
// the events of a run in turn. The first delivery takes a place in the cold queue; the
// other deliveries are linked behind it.
//
// Each event is delivered only while the lease surely lasts, by this process's clock:
// a process that was stopped for longer lets go of the rest.

// rest is the delivery and the deliveries behind it in the run.
func (d *delivery) rest() (ds []*delivery) {
	for ; d != nil; d = d.behind {
		ds = append(ds, d)
	}
	return ds
}

// length is the number of events in rest.
func (d *delivery) length() (n int64) {
	for ; d != nil; d = d.behind {
		n++
	}
	return n
}

// link makes deliveries a run.
func link(ds []delivery) {
	for i := range ds[1:] {
		ds[i].behind, ds[i+1].before = &ds[i+1], &ds[i]
	}
}

// completion is a listener's own transaction that marks its event.
type completion struct {
	scope     TxScope
	committed bool
	over      bool // the transaction rolled back, or the outcome of COMMIT is unknown
}

// deliveryContext is the context that a listener gets, and finds the delivery.
type deliveryContext struct {
	context.Context
	d   deliverer
	dl  *delivery
	log *slog.Logger
}

// deliverer is a dispatcher, as a delivery under way knows it.
type deliverer interface {
	stillHas(dl *delivery) bool
	skipped(dl *delivery) Outcome
	outcome(dl *delivery, listener string, attempts int, c cause) Outcome
	withTimeout(ctx context.Context, dl *delivery, listener string) (context.Context, context.CancelFunc)
	awaitTurn(ctx context.Context, dl *delivery) error
}

type deliveryKey struct{}

func (c *deliveryContext) Value(key any) any {
	if key == (deliveryKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// deliveryOf finds the delivery that ctx belongs to, or nil.
func deliveryOf(ctx context.Context) *deliveryContext {
	c, _ := ctx.Value(deliveryKey{}).(*deliveryContext)
	return c
}

// deliveryAttrs are the attributes of a line about a failed delivery: the event, the attempts
// including this attempt, the reason, the listener and the id of its row if the row is for one of
// several listeners, and the stack of a panic.
func deliveryAttrs(d *delivery, attempts int) []any {
	attrs := []any{
		logKeyEventID, d.event().EventID, logKeyEventType, string(d.env.EventType),
		logKeyAggregateType, string(d.env.AggregateType), logKeyAggregateID, d.env.AggregateID,
		logKeyAttempts, attempts, logKeyError, d.reason,
	}
	if d.only != nil {
		attrs = append(attrs, logKeyListener, d.only.listener, logKeyRowID, d.id())
	}
	if d.panicked != nil {
		attrs = append(attrs, logKeyStack, string(d.panicked.Stack))
	}
	return attrs
}

// causeOfFailure is the kind of event, the listener, and the reason without the parts that differ
// between two events.
func causeOfFailure(d *delivery) string {
	return strings.Join([]string{d.kind().String(), d.listener(), reason.Of(d.reason)}, "\n")
}
