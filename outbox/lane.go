package outbox

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/outboxkit/outbox-go/outbox/internal/tokens"
	"github.com/outboxkit/outbox-go/outbox/internal/wait"
)

// lane is the queue of a kind of event that has a [Limit]. It has workers of its own.
//
// What it has no room for stays in the table, and left counts that. While left is not
// zero, the poller alone fills the lane, so that the oldest events come first, and the
// poller reads the kind only when the lane is half empty.
type lane struct {
	Limit
	queue chan *delivery
	// capacity is how many events wait, and lowWater when the poller fills the lane
	// again. The queue itself has room for takeovers too, which are never refused.
	capacity, lowWater int

	tokens *tokens.Bucket // nil: no rate
	gate   chan struct{}  // held by the worker that waits for a token

	left    atomic.Int64
	filling sync.Mutex      // writers and the poller fill the lane at the same time
	waiting atomic.Bool     // the poller waits for lowWater
	room    chan<- struct{} // gets a token then
}

// Limits of a lane's capacity. A lane holds about what its workers deliver next: a
// node must not hold leases of events that another node could deliver.
const (
	lanePerWorker   = 4
	minLaneCapacity = 16
)

func newLane(l Limit, takeovers int, room chan<- struct{}) *lane {
	capacity := max(lanePerWorker*l.Concurrency, minLaneCapacity)
	n := &lane{Limit: l, room: room}
	if l.Rate > 0 { // about a second's events
		capacity = min(capacity, max(l.Burst, int(math.Ceil(l.Rate)), 2))
		n.tokens, n.gate = tokens.New(l.Rate, l.Burst), make(chan struct{}, 1)
	}
	n.capacity, n.lowWater = capacity, capacity/2
	n.queue = make(chan *delivery, capacity+takeovers)
	return n
}

// vacancy is the room for further events.
func (l *lane) vacancy() int { return max(l.capacity-len(l.queue), 0) }

// offer puts an event into the lane if it has room.
func (l *lane) offer(dl *delivery) bool {
	l.filling.Lock()
	defer l.filling.Unlock()
	return (dl.takeover || l.vacancy() > 0) && offer(l.queue, dl)
}

// leave says that an event stays in the table.
func (l *lane) leave() {
	l.left.Add(1)
	if !l.isFull() {
		wait.Signal(l.room)
	}
}

// isFull reports whether the poller is to wait; if so, it is woken when the lane is
// half empty.
func (l *lane) isFull() bool {
	if len(l.queue) <= l.lowWater {
		return false
	}
	l.waiting.Store(true)
	l.tellRoom() // a worker may have taken the last event in between
	return l.waiting.Load()
}

func (l *lane) tellRoom() {
	if len(l.queue) <= l.lowWater && l.waiting.CompareAndSwap(true, false) {
		wait.Signal(l.room)
	}
}

// take waits for the next event; nil when quit is closed and the lane is empty, or
// when abort is closed.
func (l *lane) take(quit, abort <-chan struct{}) *delivery {
	select {
	case <-abort:
		return nil
	default:
	}
	select {
	case dl := <-l.queue:
		l.tellRoom()
		return dl
	case <-quit:
		return l.takeLeft()
	}
}

// takeLeft takes without waiting; nil when the lane is empty.
func (l *lane) takeLeft() *delivery {
	select {
	case dl := <-l.queue:
		l.tellRoom()
		return dl
	default:
		return nil
	}
}

// lanes are the lanes of a dispatcher, by their kinds.
type lanes map[EventKind]*lane

func newLanes(limits []Limit, workers int, room chan<- struct{}) lanes {
	ls := make(lanes, len(limits))
	for _, l := range limits {
		l = l.withDefaults(workers)
		ls[l.Kind] = newLane(l, workers, room)
	}
	return ls
}

// of is the lane of an event; nil when its kind has no limit.
func (ls lanes) of(env *Envelope) *lane {
	if len(ls) == 0 {
		return nil
	}
	return ls[kindOf(env)]
}

// takeLeft takes from any of them without waiting; nil when all are empty.
func (ls lanes) takeLeft() *delivery {
	for _, l := range ls {
		if dl := l.takeLeft(); dl != nil {
			return dl
		}
	}
	return nil
}

func (ls lanes) depth() (n int) {
	for _, l := range ls {
		n += len(l.queue)
	}
	return n
}

// most is how many events the lanes and their workers have in hand at most.
func (ls lanes) most() (n int) {
	for _, l := range ls {
		n += cap(l.queue) + l.Concurrency
	}
	return n
}
