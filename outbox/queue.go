package outbox

import "sync/atomic"

// queues are the bounded queues of a dispatcher. Workers take two hot events to
// one other while both hold some, and never sleep while any does. What was taken
// over from a node that died goes before the rest of the cold events: see
// [tracker].
type queues struct {
	hot, cold, taken chan *delivery
	// room gets a token when the cold queue falls to lowWater, if the poller
	// waits for that.
	room     chan struct{}
	waiting  atomic.Bool
	lowWater int
	// behind counts the events of the cold queue that are behind the first one of
	// their run.
	behind atomic.Int64
}

func (q *queues) initQueues(hotCapacity, coldCapacity, workers int) {
	q.hot = make(chan *delivery, hotCapacity)
	q.taken = make(chan *delivery, workers)
	q.cold = make(chan *delivery, coldCapacity)
	q.room = make(chan struct{}, 1)
	q.lowWater = coldCapacity / 2
}

// take waits for the next event; turn counts a worker's events. After quit is
// closed it returns what is left and then nil, after abort nil at once.
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
	for next := dl.behind; next != nil; next = next.behind {
		q.behind.Add(-1)
	}
	if q.inCold() <= q.lowWater && q.waiting.CompareAndSwap(true, false) {
		signal(q.room)
	}
	return dl
}

// hasRoom reports whether the cold queue is at lowWater or below; if not, room
// gets a token when it is.
func (q *queues) hasRoom() bool {
	if q.inCold() <= q.lowWater {
		return true
	}
	q.waiting.Store(true)
	// A worker may have taken the last event in between.
	return q.inCold() <= q.lowWater
}

// inCold is how many events are in the cold queue.
func (q *queues) inCold() int { return len(q.cold) + int(q.behind.Load()) }

func (q *queues) depths() (hot, cold int) { return len(q.hot), q.inCold() + len(q.taken) }

// offer puts an event into one of the queues if it has room.
func offer(queue chan<- *delivery, dl *delivery) bool {
	select {
	case queue <- dl:
		return true
	default:
		return false
	}
}
