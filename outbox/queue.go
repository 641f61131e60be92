package outbox

import (
	"sync/atomic"

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

func (q *queues) hotDepth() int  { return len(q.hot) + int(q.hotMoved.Load()) }
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
