package outbox

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/outboxkit/outbox-go/outbox/internal/patience"
)

// queueUp puts an event into its lane, or into the queue if the event has no lane.
// queueUp refuses an event of a kind that is paused.
func (d *dispatcher) queueUp(queue chan *delivery, dl *delivery) bool {
	if d.pauses.has(dl.env) {
		return false
	}
	l := d.lanes.of(dl.env)
	if l == nil {
		return d.offer(queue, dl)
	}
	if l.offer(dl) {
		return true
	}
	l.leave()
	return false
}

// mayDeliver reports whether a delivery that a worker took may begin. Another process
// may hold the table now, or have held it since the event was taken in hand; or the
// event's kind was paused meanwhile.
func (d *dispatcher) mayDeliver(dl *delivery) bool {
	switch {
	case !d.holds() || dl.term != d.term() || !d.track.leased(dl):
		return false
	case !d.pauses.has(dl.env):
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
		return l.take(d.quit, d.abort)
	}
	select {
	case l.gate <- struct{}{}:
		defer func() { <-l.gate }()
	case <-d.abort:
		return nil
	}
	for {
		dl := l.take(d.quit, d.abort)
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
		l.leave()
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
		if l.left.Load() > 0 && l.isFull() && !d.pauses.hasKind(l.Kind) {
			kinds = append(kinds, l.Kind)
		}
	}
	return kinds
}

// openRoom is the least room among the lanes that the poller fills from the table;
// zero when it fills no lane.
func (d *dispatcher) openRoom() (room int) {
	for _, l := range d.lanes {
		if n := l.vacancy(); l.left.Load() > 0 && n > 0 && (room == 0 || n < room) {
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
	if !known && l.left.Load() == 0 {
		room = l.vacancy()
	}
	if s.lanes == nil {
		s.lanes = map[*lane]int{}
	}
	s.lanes[l] = room - 1
	return room > 0
}

// leavingOut is the state of the poller for passes that leave out kinds of events.
type leavingOut struct {
	except      []EventKind // kinds that the last batch left out, or refused
	laneBatches int         // since a lane that had no room has some
}

// passOver notes that the dispatcher left an event out for its kind.
func (p *poller) passOver(kind EventKind) {
	if !slices.Contains(p.except, kind) {
		p.except = append(p.except, kind)
	}
}

// readPauses reads the pauses if that is due. The poller's patience stays as it is,
// because reading the pauses is fast when claims are slow.
func (p *poller) readPauses(ctx context.Context) error {
	if !p.dispatcher.pauses.isDue() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, p.patience.Now())
	defer cancel()
	if err := p.dispatcher.pauses.read(ctx); err != nil {
		return fmt.Errorf("outbox: reading what is paused: %w", err)
	}
	return nil
}

// doubtPauses says that another process may have paused or resumed something.
func (p *poller) doubtPauses() { p.dispatcher.pauses.stale.Store(true) }

// leaveOut decides which kinds of events the next batch leaves out: kinds that are
// paused, and kinds whose lanes are full. When a kind is no longer left out, the pass
// over the table starts over. left is how many events the other lanes left in the
// table by now.
func (p *poller) leaveOut() (left map[*lane]int64) {
	d := p.dispatcher
	except := d.except()
	fewer := slices.ContainsFunc(p.except, func(kind EventKind) bool { return !slices.Contains(except, kind) })
	if fewer {
		p.laneBatches = 0
	}
	if p.pass.RestartAsked() || fewer {
		p.pass.StartOver()
	}
	p.except = except
	for kind, l := range d.lanes {
		if n := l.left.Load(); n > 0 && !slices.Contains(except, kind) {
			if left == nil {
				left = map[*lane]int64{}
			}
			left[l] = n
		}
	}
	return left
}

// laneRoom bounds the next batch while it may have events for a lane with little room:
// events that the lane does not take have to be given back. Each batch may be twice as
// large as the batch before, because the events may be of other kinds.
func (p *poller) laneRoom() int {
	room := p.dispatcher.openRoom()
	if room == 0 {
		return MaxBatch
	}
	room <<= min(p.laneBatches, 16)
	p.laneBatches++
	return room
}

// passStart is where a pass over the table begins. A pass that leaves out kinds reads
// past all of their rows. While another transaction holds an old snapshot, any pass
// reads past the rows that were delivered since then. So after a pass over all rows,
// passes begin at the recent rows for as long as sweepPause.
func (p *poller) passStart(now time.Time) Cursor {
	cheap := len(p.except) == 0 && p.fromStart.Last() < slowRead
	if cheap || now.Sub(p.pass.Swept()) > max(p.sweepPause(), time.Second) {
		return Cursor{}
	}
	return Cursor{AvailableAt: storedTime(p.pass.Swept().Add(-p.opts.SkipRecent - lateCommit))}
}

// sweepPause is the time between two reads from the start of the table: the interval. While
// kinds are left out, sweepPause grows with their rows, so that the reads take a hundredth of
// the time.
func (p *poller) sweepPause() time.Duration {
	if len(p.except) == 0 {
		return p.opts.Interval
	}
	return max(p.opts.Interval, min(100*p.fromStart.Last(), maxSweepPause))
}

// maxSweepPause is how long an event that only a read from the start of the table finds
// may wait at most, unless the interval is longer.
const maxSweepPause = time.Minute

// lateCommit is how long a transaction may take, so that a pass which begins at recent
// rows finds its events. Events of longer transactions wait for a pass over all rows.
const lateCommit = 10 * time.Second

// slowRead is the time from which a read from the start of the table counts as slow, and
// is not repeated within sweepPause.
const slowRead = 100 * time.Millisecond

// patienceFrom is the patience for a read from a place. Reads from the start have a
// separate patience: they may take much longer than other reads, which would lower the
// limit each time.
func (p *poller) patienceFrom(place Cursor) *patience.Patience {
	if place.IsZero() {
		return &p.fromStart
	}
	return &p.patience
}

// endPass ends a pass over the table: the lanes have the events that they had left there
// before the last batch.
func (p *poller) endPass(left map[*lane]int64) {
	p.pass.End()
	for l, n := range left {
		l.left.CompareAndSwap(n, 0)
	}
}

// startOver makes the poller look now, from the start of the table: rows became free.
func (p *poller) startOver() {
	p.pass.Restart()
	p.Wake()
}

// room is how many events the dispatcher takes now; zero while there is not enough
// room for a batch worth reading.
func (p *poller) room() int {
	if !p.dispatcher.hasRoom() {
		return 0
	}
	return p.dispatcher.coldRoom()
}

// checkLimits reports the limits for whose kinds no listener is registered, or whose listener gets
// batches. The size and the concurrency of batches are bounds of their own.
func checkLimits(limits []Limit, registry ListenerRegistry) error {
	v := validator{what: "DispatchOptions"}
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
