package outbox

import (
	"fmt"
	"time"
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
