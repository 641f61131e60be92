package outbox

import (
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outboxkit/outbox-go/outbox/internal/flow"
	"github.com/outboxkit/outbox-go/outbox/internal/shares"
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

// lane is the queue of a kind of event that has a Concurrency or a Rate, or is Fleetwide; see [Rules].
// A lane has workers of its own.
//
// Events for which the lane has no room stay in the table. While the lane counts such events, the
// poller alone fills the lane, and the poller reads the kind only when the lane is half empty.
type lane struct {
	concurrency int
	*flow.Lane[*delivery]
	tokens *tokens.Bucket // nil: no rate
	share  *shares.Share  // of limits of all processes; nil: the limits are of this process
	gate   chan struct{}  // held by the worker that waits for a token, or for a place in the share
	waits  atomic.Bool    // the worker at the gate has an event
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
	limits := shares.Limits{Concurrency: r.Concurrency, Rate: r.Rate, KeyConcurrency: r.KeyConcurrency, KeyRate: r.KeyRate}
	if r.Rate > 0 {
		limits.Burst = defaultTo(r.Burst, max(1, int(r.Rate/10)))
	}
	capacity := l.capacity(limits)
	l.Lane = flow.NewLane(flow.Options[*delivery]{Capacity: capacity, Spare: d.opts.Workers, LowWater: capacity / 2, Wake: d.room})
	switch {
	case r.Fleetwide && d.claims:
		l.share = d.fleet.share(kind, limits, l.hasEvents, func(parts int) { d.resize(l, limits, parts) })
		l.Bound(0)
	case r.Rate > 0:
		l.tokens = d.rates.of(kind, r.Rate, limits.Burst)
	default:
		return l
	}
	l.gate = make(chan struct{}, 1)
	return l
}

// capacity is how many events a lane with these limits holds.
func (l *lane) capacity(limits shares.Limits) int {
	capacity := max(lanePerWorker*defaultTo(limits.Concurrency, l.concurrency), minLaneCapacity)
	if limits.Rate > 0 { // about a second's events
		capacity = min(capacity, max(limits.Burst, int(math.Ceil(limits.Rate)), 2))
	}
	return capacity
}

// resize fits a lane to the share of this process. Without a share, the lane gives the events back:
// other processes may have the share. Events that were taken over stay, so that they remain few.
func (d *dispatcher) resize(l *lane, limits shares.Limits, parts int) {
	if parts > 0 {
		l.Bound(l.capacity(limits.Of(parts)))
		return
	}
	l.Bound(0)
	var back, stay []*delivery
	for dl := l.TakeLeft(); dl != nil; dl = l.TakeLeft() {
		if dl.takeover {
			stay = append(stay, dl)
		} else {
			back = append(back, dl)
			l.Leave()
		}
	}
	for _, dl := range stay {
		if !l.Push(dl) {
			back = append(back, dl)
		}
	}
	d.letGo(back...)
}

// hasEvents reports whether there are events for the lane, here or in the table.
func (l *lane) hasEvents() bool { return l.Depth() > 0 || l.Left() > 0 || l.waits.Load() }

// Leave counts an event that stays in the table, and asks for a share.
func (l *lane) Leave() {
	l.Lane.Leave()
	l.ask()
}

// ask asks for a share, as there are events.
func (l *lane) ask() {
	if l.share != nil {
		l.share.Ask()
	}
}

// resized is closed when the share changes; nil: there is no share.
func (l *lane) resized() <-chan struct{} {
	if l.share == nil {
		return nil
	}
	return l.share.Changed()
}

// hasNoShare reports whether other processes have the limits now.
func (l *lane) hasNoShare() bool { return l.share != nil && l.share.Parts() == 0 }

// keyBounds are the bounds of an event's key in this process.
func (d *dispatcher) keyBounds(dl *delivery, rules *Rules) keyBounds {
	b := keyBounds{concurrency: rules.KeyConcurrency, rate: rules.KeyRate}
	if !rules.Fleetwide || b == (keyBounds{}) {
		return b
	}
	if l := d.lanes().of(dl.env); l != nil && l.share != nil {
		own := l.share.Limits().Of(max(l.share.Parts(), 1)) // a delivery that has begun holds a part
		b = keyBounds{own.KeyConcurrency, own.KeyRate, l.share.Limits().KeyRate}
	}
	return b
}

// begin takes the token for a delivery, and a place in the share, or says how long to wait.
func (l *lane) begin(dl *delivery) (wait time.Duration) {
	if l.share == nil {
		return l.tokens.Take(time.Now())
	}
	wait, dl.inShare = l.share.Begin()
	return wait
}

// awaitsShare reports whether events wait in the table for a share.
func (d *dispatcher) awaitsShare() bool { return haveLeft(d.shareless()) }

// ownShares are the shares of this process, by kind.
func (d *dispatcher) ownShares() (list []OwnShare) {
	for kind, l := range d.lanes() {
		if l.share != nil {
			list = append(list, OwnShare{Kind: kind, Parts: l.share.Parts(), Of: l.share.Limits().Parts()})
		}
	}
	slices.SortFunc(list, func(a, b OwnShare) int { return compareKinds(a.Kind, b.Kind) })
	return list
}

// shareless are the lanes that have no share now.
func (d *dispatcher) shareless() (list []*lane) {
	for _, l := range d.lanes() {
		if l.hasNoShare() {
			list = append(list, l)
		}
	}
	return list
}

// haveLeft reports whether any of the lanes left events in the table.
func haveLeft(list []*lane) bool {
	return slices.ContainsFunc(list, func(l *lane) bool { return l.Left() > 0 })
}

// closeShares begins to give up the shares of this process, and returns the result.
func (d *dispatcher) closeShares() <-chan error {
	result := make(chan error, 1)
	go func() {
		var errs []error
		var all sync.WaitGroup
		var mu sync.Mutex
		for _, l := range d.lanes() {
			if l.share == nil {
				continue
			}
			all.Go(func() {
				err := l.share.Close(d.opts.DrainTimeout)
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
			})
		}
		all.Wait()
		result <- errors.Join(errs...)
	}()
	return result
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
		l.ask()
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

// laneTaker gives the deliveries of a lane to a worker, which has ended a delivery when it takes the
// next.
func (d *dispatcher) laneTaker(l *lane) func() *delivery {
	var last *delivery
	return func() *delivery {
		if last != nil && last.inShare {
			l.share.End()
		}
		last = d.takeFrom(l)
		return last
	}
}

// takeFrom waits for the next event of a lane that may be delivered now; nil when the
// worker is to end. With a rate or a share, one worker at a time takes an event and waits.
func (d *dispatcher) takeFrom(l *lane) *delivery {
	if l.gate == nil {
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
		if l.hasNoShare() {
			l.Leave()
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
	dl.waiting = d.keys.waits(dl, d.keyBounds(dl, rules))
	return dl.waiting != nil
}

// awaitToken waits until the rate, or the share, allows a delivery; false when the delivery must not
// begin any more, when the share is given up, or when the dispatcher closes.
func (d *dispatcher) awaitToken(l *lane, dl *delivery) bool {
	l.waits.Store(true)
	defer l.waits.Store(false)
	for {
		changed, resized := d.pauses.changed(), l.resized()
		if !d.mayDeliver(dl) {
			return false
		}
		wait := l.begin(dl)
		if wait <= 0 {
			return true
		}
		if l.hasNoShare() && !dl.takeover {
			return false
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-changed:
		case <-resized:
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

// isElsewhere reports whether other processes have the limits of an event's kind.
func (d *dispatcher) isElsewhere(env *Envelope) bool {
	l := d.lanes().of(env)
	return l != nil && l.hasNoShare()
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
