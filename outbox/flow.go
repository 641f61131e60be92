package outbox

import (
	"fmt"
	"math"
	"time"

	"github.com/outboxkit/outbox-go/outbox/internal/flow"
	"github.com/outboxkit/outbox-go/outbox/internal/tokens"
)

// initQueues makes the queues and the lanes. The poller reads batch rows at once, and again when a
// batch has room, but not later than when the cold queue is half empty, so that workers do not run
// dry.
func (d *dispatcher) initQueues(batch int) {
	capacity := d.opts.ColdCapacity
	d.room = make(chan struct{}, 1)
	d.queues = flow.Queues[*delivery]{
		Hot:   flow.New(flow.Options[*delivery]{Capacity: d.opts.HotCapacity}),
		Ahead: flow.New(flow.Options[*delivery]{Capacity: d.opts.Workers}),
		Cold: flow.New(flow.Options[*delivery]{
			Capacity: capacity, LowWater: capacity - max(1, min(batch, capacity/2)), Wake: d.room, Weight: (*delivery).length,
		}),
	}
	d.lanes = make(lanes, len(d.opts.Limits))
	for _, l := range d.opts.Limits {
		l = l.withDefaults(d.opts.Workers)
		d.lanes[l.Kind] = newLane(l, d.opts.Workers, d.room)
	}
}

// lane is the queue of a kind of event that has a [Limit]. A lane has workers of its own.
//
// Events for which the lane has no room stay in the table. While the lane counts such events, the
// poller alone fills the lane, and the poller reads the kind only when the lane is half empty.
type lane struct {
	Limit
	*flow.Lane[*delivery]
	tokens *tokens.Bucket // nil: no rate
	gate   chan struct{}  // held by the worker that waits for a token
}

// Limits of a lane's capacity. A lane holds about as many events as its workers deliver next: a
// node must not hold leases of events that another node could deliver.
const (
	lanePerWorker   = 4
	minLaneCapacity = 16
)

// newLane makes a lane, with spare room for takeovers, which a lane never refuses.
func newLane(l Limit, takeovers int, room chan<- struct{}) *lane {
	capacity := max(lanePerWorker*l.Concurrency, minLaneCapacity)
	n := &lane{Limit: l}
	if l.Rate > 0 { // about a second's events
		capacity = min(capacity, max(l.Burst, int(math.Ceil(l.Rate)), 2))
		n.tokens, n.gate = tokens.New(l.Rate, l.Burst), make(chan struct{}, 1)
	}
	n.Lane = flow.NewLane(flow.Options[*delivery]{Capacity: capacity, Spare: takeovers, LowWater: capacity / 2, Wake: room})
	return n
}

// lanes are the lanes of a dispatcher, by their kinds.
type lanes map[EventKind]*lane

// of is the lane of an event; nil when its kind has no limit.
func (ls lanes) of(env *Envelope) *lane {
	if len(ls) == 0 {
		return nil
	}
	return ls[kindOf(env)]
}

// queueOf is the queue for an event without a lane. Events that were taken over from a node that
// died go before the rest of the cold events: see [tracker].
func (d *dispatcher) queueOf(dl *delivery) *flow.Queue[*delivery] {
	switch {
	case dl.hot:
		return d.queues.Hot
	case dl.takeover:
		return d.queues.Ahead
	default:
		return d.queues.Cold
	}
}

// queueUp puts an event into its lane, or into a queue if the event has no lane. queueUp refuses an
// event of a kind that is paused.
func (d *dispatcher) queueUp(dl *delivery) bool {
	if d.pauses.has(dl.env) {
		return false
	}
	l := d.lanes.of(dl.env)
	if l == nil {
		return d.queueOf(dl).Offer(dl)
	}
	if dl.takeover && l.Push(dl) || l.Offer(dl) {
		return true
	}
	l.Leave()
	return false
}

// moved says that a delivery's n events wait in a [batcher] from now on, or no more if n is negative.
func (d *dispatcher) moved(dl *delivery, n int64) {
	if dl.hot {
		d.queues.Hot.Elsewhere(n)
	} else {
		d.queues.Cold.Elsewhere(n)
	}
}

// depths are how many events wait in the hot queue, and in the others.
func (d *dispatcher) depths() (hot, cold int) {
	cold = d.queues.Cold.Depth() + d.queues.Ahead.Depth()
	for _, l := range d.lanes {
		cold += l.Depth()
	}
	return d.queues.Hot.Depth(), cold
}

// mayDeliver reports whether a delivery that a worker took may begin. Another process
// may hold the table now, or have held it since the event was taken in hand; or the
// event's kind was paused meanwhile.
func (d *dispatcher) mayDeliver(dl *delivery) bool {
	switch {
	case !d.holds() || dl.term != d.term() || !d.track.leased(dl):
		return false
	case !d.pauses.stops(dl):
		return true
	}
	d.holdUp()
	return false
}

// isOfTheHold reports whether this process has held the table since it took the event in
// hand. A delivery without a term, as by [Outbox.Deliver], needs no hold.
func (d *dispatcher) isOfTheHold(dl *delivery) bool {
	return dl.term == 0 || d.holds() && dl.term == d.term()
}

// stillHas reports whether a delivery that began may go on: no other process can have the
// event.
func (d *dispatcher) stillHas(dl *delivery) bool { return d.isOfTheHold(dl) && d.track.leased(dl) }

// holdUp begins a new term in [Ordered], because an event is given back: events that are
// queued behind it must not go before it.
func (d *dispatcher) holdUp() {
	if d.inOrder {
		d.hold.NewTerm()
	}
}

// takeFrom waits for the next event of a lane that may be delivered now; nil when the
// worker is to end. With a rate, one worker at a time takes an event and waits for a
// token.
func (d *dispatcher) takeFrom(l *lane) *delivery {
	if l.tokens == nil {
		return l.Take(d.quit, d.abort)
	}
	select {
	case l.gate <- struct{}{}:
		defer func() { <-l.gate }()
	case <-d.abort:
		return nil
	}
	for {
		dl := l.Take(d.quit, d.abort)
		if dl == nil || d.awaitToken(l, dl) {
			return dl
		}
		d.letGo(dl)
		d.wakePoller()
	}
}

// awaitToken waits until the rate allows a delivery; false when the delivery must not
// begin any more, or when the dispatcher closes.
func (d *dispatcher) awaitToken(l *lane, dl *delivery) bool {
	for {
		changed := d.pauses.changed()
		if !d.mayDeliver(dl) {
			return false
		}
		wait := l.tokens.Take(time.Now())
		if wait <= 0 {
			return true
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-changed:
		case <-d.quit:
			timer.Stop()
			return false
		}
		timer.Stop()
	}
}

// keeps reports whether an event stays in the table, for the poller, because of a pause
// or a limit. keeps is called when the event's transaction committed.
func (d *dispatcher) keeps(env *Envelope) bool {
	if d.pauses.has(env) {
		return true
	}
	l := d.lanes.of(env)
	if l != nil {
		l.Leave()
	}
	return l != nil
}

// passesOver reports whether a refused event does not end the batch that it came in,
// because it was refused for its kind.
func (d *dispatcher) passesOver(env *Envelope) bool {
	return !d.inOrder && (d.pauses.has(env) || d.lanes.of(env) != nil)
}

// except are the kinds of events that the poller leaves out now.
func (d *dispatcher) except() []EventKind {
	if d.inOrder { // a paused event holds up the events behind it
		return nil
	}
	kinds := d.pauses.kinds()
	for _, l := range d.lanes {
		if l.Left() > 0 && l.IsFull() && !d.pauses.hasKind(l.Kind) {
			kinds = append(kinds, l.Kind)
		}
	}
	return kinds
}

// openRoom is the least room among the lanes that the poller fills from the table;
// zero when it fills no lane.
func (d *dispatcher) openRoom() (room int) {
	for _, l := range d.lanes {
		if n := l.Room(); l.Left() > 0 && n > 0 && (room == 0 || n < room) {
			room = n
		}
	}
	return room
}

// space is the room for the events of a write.
type space struct {
	pauses *pauses
	all    lanes
	hot    int
	lanes  map[*lane]int // the room in the lanes that the write needs
}

// take takes the room for an event; false when there is no room, or when the event's
// kind is paused.
func (s *space) take(env *Envelope) bool {
	if s.pauses.has(env) {
		return false
	}
	l := s.all.of(env)
	if l == nil {
		s.hot--
		return s.hot >= 0
	}
	room, known := s.lanes[l]
	if !known && l.Left() == 0 {
		room = l.Room()
	}
	if s.lanes == nil {
		s.lanes = map[*lane]int{}
	}
	s.lanes[l] = room - 1
	return room > 0
}

// checkLimits reports the limits for whose kinds no listener is registered, or whose listener gets
// batches. The size and the concurrency of batches are bounds of their own.
func checkLimits(limits []Limit, registry ListenerRegistry) error {
	v := validator{what: "Config.Mode.Dispatch"}
	for i, l := range limits {
		kind := l.Kind.orGlobal()
		l, found := registry.ListenerFor(kind.AggregateType, kind.EventType)
		if !found {
			v.add(fmt.Sprintf("Limits[%d].Kind", i), fmt.Sprintf("is %s, for which no listener is registered; register one, or correct the kind", kind))
		}
		if _, batched := l.(*batchListener); batched {
			v.add(fmt.Sprintf("Limits[%d].Kind", i), fmt.Sprintf("is %s, whose listener gets batches; its BatchOptions.Concurrency bounds the calls", kind))
		}
	}
	return v.err()
}
