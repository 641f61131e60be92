package outbox

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/outboxkit/outbox-go/outbox/internal/tokens"
	"github.com/outboxkit/outbox-go/outbox/internal/wait"
)

// queues are the bounded queues of a dispatcher. Workers take two hot events for each other event
// while both kinds wait, and never sleep while any event waits. Events that were taken over from a
// node that died go before the rest of the cold events: see [tracker].
type queues struct {
	hot, cold, taken chan *delivery
	lanes            lanes // of the kinds that have a limit
	// room gets a token when the cold queue falls to lowWater, if the poller waits for room.
	room     chan struct{}
	waiting  atomic.Bool
	lowWater int
	// Events that wait in a [batcher]; they count as if they were in their queue.
	hotMoved, coldMoved atomic.Int64
	// behind counts the events of the cold queue that are behind the first event of their run.
	behind atomic.Int64
}

// initQueues makes the queues. The poller reads batch rows at once.
func (q *queues) initQueues(opts DispatchOptions, batch int) {
	q.hot = make(chan *delivery, opts.HotCapacity)
	q.taken = make(chan *delivery, opts.Workers)
	q.cold = make(chan *delivery, opts.ColdCapacity)
	q.room = make(chan struct{}, 1)
	q.lowWater = opts.ColdCapacity - wantedRoom(batch, opts.ColdCapacity)
	q.lanes = newLanes(opts.Limits, opts.Workers, q.room)
}

// wantedRoom is how much of the cold queue is to be free before the poller asks
// again: a batch, but no more than half, so that workers do not run dry.
func wantedRoom(batch, capacity int) int { return max(1, min(batch, capacity/2)) }

// take waits for the next event; turn counts a worker's events. After quit is closed, take returns
// the events that are left and then nil; after abort is closed, nil at once.
func (q *queues) take(turn int, quit, abort <-chan struct{}) *delivery {
	select {
	case <-abort:
		return nil
	default:
	}
	if turn%3 == 2 { // the cold queue's turn
		select {
		case dl := <-q.taken:
			return dl
		default:
		}
		select {
		case dl := <-q.cold:
			return q.tookCold(dl)
		default:
		}
	} else {
		select {
		case dl := <-q.hot:
			return dl
		default:
		}
	}
	select {
	case dl := <-q.hot:
		return dl
	case dl := <-q.taken:
		return dl
	case dl := <-q.cold:
		return q.tookCold(dl)
	case <-quit:
	}
	return q.takeLeft()
}

// takeLeft takes without waiting; nil when the queues are empty.
func (q *queues) takeLeft() *delivery {
	select {
	case dl := <-q.hot:
		return dl
	case dl := <-q.taken:
		return dl
	default:
	}
	select {
	case dl := <-q.cold:
		return q.tookCold(dl)
	default:
		return nil
	}
}

func (q *queues) tookCold(dl *delivery) *delivery {
	if dl.behind != nil {
		q.behind.Add(-dl.behind.length())
	}
	q.tellRoom()
	return dl
}

// tellRoom makes the poller read when the cold queue has room again.
func (q *queues) tellRoom() {
	if q.coldDepth() <= q.lowWater && q.waiting.CompareAndSwap(true, false) {
		wait.Signal(q.room)
	}
}

func (q *queues) hotDepth() int { return len(q.hot) + int(q.hotMoved.Load()) }

func (q *queues) coldDepth() int { return len(q.cold) + int(q.behind.Load()+q.coldMoved.Load()) }

// moved says that a delivery waits in a batcher from now on, or no more.
func (q *queues) moved(dl *delivery, n int64) {
	if dl.hot {
		q.hotMoved.Add(n)
		return
	}
	q.coldMoved.Add(n)
	q.tellRoom()
}

// hasRoom reports whether the cold queue is at lowWater or below; if not, room gets a token when
// the queue falls to lowWater.
func (q *queues) hasRoom() bool {
	if q.coldDepth() <= q.lowWater {
		return true
	}
	q.waiting.Store(true)
	// A worker may have taken the last event in between.
	return q.coldDepth() <= q.lowWater
}

func (q *queues) depths() (hot, cold int) {
	return q.hotDepth(), q.coldDepth() + len(q.taken) + q.lanes.depth()
}

// offer puts an event into a queue if the queue has room.
func (q *queues) offer(queue chan *delivery, dl *delivery) bool {
	dl.hot = queue == q.hot
	if dl.hot && q.hotDepth() >= cap(q.hot) || queue == q.cold && q.coldDepth() >= cap(q.cold) {
		return false
	}
	return q.push(queue, dl)
}

// push is offer for an event that has room already, unless the channel is full.
func (q *queues) push(queue chan *delivery, dl *delivery) bool {
	behind := int64(0)
	if queue == q.cold {
		behind = dl.behind.length()
	}
	q.behind.Add(behind)
	if offer(queue, dl) {
		return true
	}
	q.behind.Add(-behind)
	return false
}

func offer(queue chan<- *delivery, dl *delivery) bool {
	select {
	case queue <- dl:
		return true
	default:
		return false
	}
}

// found is the queue for an event that the poller found.
func (q *queues) found(dl *delivery) chan *delivery {
	if dl.takeover {
		return q.taken
	}
	return q.cold
}

// lane is the queue of a kind of event that has a [Limit]. A lane has workers of its own.
//
// Events for which the lane has no room stay in the table, and left counts them. While left is not
// zero, the poller alone fills the lane, so that the oldest events come first, and the poller reads
// the kind only when the lane is half empty.
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

// Limits of a lane's capacity. A lane holds about as many events as its workers deliver next: a
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

// isFull reports whether the poller is to wait; if so, the poller is woken when the lane is half
// empty.
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

// takeLeft takes an event from any lane without waiting; nil when all lanes are empty.
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
