package outbox

import (
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
}

// initLanes makes the lanes of the kinds that have a Concurrency or a Rate.
func (d *dispatcher) initLanes() {
	made := lanes{}
	for kind, r := range d.rules.Load().kinds {
		if kind.Listener == "" && r.isLimited() {
			made[kind] = d.newLane(kind, *r)
		}
	}
	d.made.Store(&made)
}

// lanes are the lanes; nil before Start.
func (d *dispatcher) lanes() lanes {
	if made := d.made.Load(); made != nil {
		return *made
	}
	return nil
}

// lane is the queue of a kind of event that has a Concurrency or a Rate; see [Rules]. A lane has
// workers of its own.
//
// Events for which the lane has no room stay in the table. While the lane counts such events, the
// poller alone fills the lane, and the poller reads the kind only when the lane is half empty.
type lane struct {
	concurrency int
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
func (d *dispatcher) newLane(kind EventKind, r Rules) *lane {
	l := &lane{concurrency: defaultTo(r.Concurrency, d.opts.Workers)}
	capacity := max(lanePerWorker*l.concurrency, minLaneCapacity)
	if r.Rate > 0 { // about a second's events
		burst := defaultTo(r.Burst, max(1, int(r.Rate/10)))
		capacity = min(capacity, max(burst, int(math.Ceil(r.Rate)), 2))
		l.tokens, l.gate = d.rates.of(kind, r.Rate, burst), make(chan struct{}, 1)
	}
	l.Lane = flow.NewLane(flow.Options[*delivery]{Capacity: capacity, Spare: d.opts.Workers, LowWater: capacity / 2, Wake: d.room})
	return l
}

// rates have the tokens of the kinds that have a Rate. An outbox keeps them from one Drain to the next.
// rates are for one goroutine at a time.
type rates struct{ kinds map[EventKind]*tokens.Bucket }

func (r *rates) of(kind EventKind, rate float64, burst int) *tokens.Bucket {
	if r.kinds == nil {
		r.kinds = map[EventKind]*tokens.Bucket{}
	}
	if r.kinds[kind] == nil {
		r.kinds[kind] = tokens.New(rate, burst)
	}
	return r.kinds[kind]
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

// leaves reports whether this process leaves an event in the table now: its kind is paused, or has no
// listener here.
func (d *dispatcher) leaves(env *Envelope) bool { return d.pauses.has(env) || d.unheard.has(env) }

// queueUp puts an event into its lane, or into a queue if the event has no lane. queueUp refuses an
// event that stays in the table.
func (d *dispatcher) queueUp(dl *delivery) bool {
	if d.leaves(dl.env) {
		return false
	}
	l := d.lanes().of(dl.env)
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
	for _, l := range d.lanes() {
		cold += l.Depth()
	}
	return d.queues.Hot.Depth(), cold
}

// mayDeliver reports whether a delivery that a worker took may begin. Another process
// may hold the table now, or have held it since the event was taken in hand; or the
// event's kind was paused meanwhile, or found to have no listener here.
func (d *dispatcher) mayDeliver(dl *delivery) bool {
	switch {
	case !d.holds() || dl.term != d.term() || !d.track.leased(dl):
		return false
	case !d.pauses.stops(dl) && !d.unheard.has(dl.env):
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
		if dl == nil || d.needsNoToken(dl) || d.awaitToken(l, dl) {
			return dl
		}
		d.letGo(dl)
		d.wakePoller()
	}
}

// needsNoToken reports whether an event is not for its listener now: it expired, or waits because of the
// key.
func (d *dispatcher) needsNoToken(dl *delivery) bool {
	rules := d.rulesOf(dl)
	if d.isExpired(dl, rules) {
		return true
	}
	dl.waiting = d.keys.waits(dl, rules)
	return dl.waiting != nil
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
	l := d.lanes().of(env)
	if l != nil {
		l.Leave()
	}
	return l != nil
}

// passesOver reports whether a refused event does not end the batch that it came in,
// because it was refused for its kind.
func (d *dispatcher) passesOver(env *Envelope) bool {
	return !d.inOrder && (d.leaves(env) || d.lanes().of(env) != nil)
}

// stays are the kinds of events that stay in the table, as far as this process is concerned.
func (d *dispatcher) stays() []EventKind {
	kinds := d.pauses.kinds()
	for _, kind := range d.unheard.list() {
		if !d.pauses.hasKind(kind) {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// except are the kinds of events that the poller leaves out now.
func (d *dispatcher) except() []EventKind {
	if d.inOrder { // a paused event holds up the events behind it
		return nil
	}
	kinds := d.stays()
	for kind, l := range d.lanes() {
		if l.Left() > 0 && l.IsFull() && !d.pauses.hasKind(kind) {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// openRoom is the least room among the lanes that the poller fills from the table;
// zero when it fills no lane.
func (d *dispatcher) openRoom() (room int) {
	for _, l := range d.lanes() {
		if n := l.Room(); l.Left() > 0 && n > 0 && (room == 0 || n < room) {
			room = n
		}
	}
	return room
}

// space is the room for the events of a write.
type space struct {
	d     *dispatcher
	hot   int
	lanes map[*lane]int // the room in the lanes that the write needs
}

// take takes the room for an event; false when there is no room, or when the event stays in the
// table.
func (s *space) take(env *Envelope) bool {
	if s.d.leaves(env) {
		return false
	}
	l := s.d.lanes().of(env)
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
