package outbox

import "sync/atomic"

// queues are the bounded queues of a dispatcher. Workers take two hot events to
// one other while both hold some, and never sleep while any does. What was taken
// over from a node that died goes before the rest of the cold events: see
// [tracker].
type queues struct {
	hot, cold, taken chan *Envelope
	// room gets a token when the cold queue falls to lowWater, if the poller
	// waits for that.
	room     chan struct{}
	waiting  atomic.Bool
	lowWater int
}

func (q *queues) initQueues(hotCapacity, coldCapacity, workers int) {
	q.hot = make(chan *Envelope, hotCapacity)
	q.taken = make(chan *Envelope, workers)
	q.cold = make(chan *Envelope, coldCapacity)
	q.room = make(chan struct{}, 1)
	q.lowWater = coldCapacity / 2
}

// take waits for the next event; turn counts a worker's events. After quit is
// closed it returns what is left and then nil, after abort nil at once.
func (q *queues) take(turn int, quit, abort <-chan struct{}) *Envelope {
	select {
	case <-abort:
		return nil
	default:
	}
	if turn%3 == 2 { // the cold queue's turn
		select {
		case env := <-q.taken:
			return env
		default:
		}
		select {
		case env := <-q.cold:
			return q.tookCold(env)
		default:
		}
	} else {
		select {
		case env := <-q.hot:
			return env
		default:
		}
	}
	select {
	case env := <-q.hot:
		return env
	case env := <-q.taken:
		return env
	case env := <-q.cold:
		return q.tookCold(env)
	case <-quit:
	}
	return q.takeLeft()
}

// takeLeft takes without waiting; nil when the queues are empty.
func (q *queues) takeLeft() *Envelope {
	select {
	case env := <-q.hot:
		return env
	case env := <-q.taken:
		return env
	default:
	}
	select {
	case env := <-q.cold:
		return q.tookCold(env)
	default:
		return nil
	}
}

func (q *queues) tookCold(env *Envelope) *Envelope {
	if len(q.cold) <= q.lowWater && q.waiting.CompareAndSwap(true, false) {
		signal(q.room)
	}
	return env
}

// hasRoom reports whether the cold queue is at lowWater or below; if not, room
// gets a token when it is.
func (q *queues) hasRoom() bool {
	if len(q.cold) <= q.lowWater {
		return true
	}
	q.waiting.Store(true)
	// A worker may have taken the last event in between.
	return len(q.cold) <= q.lowWater
}

func (q *queues) depths() (hot, cold int) { return len(q.hot), len(q.cold) + len(q.taken) }

// offer puts an event into one of the queues if it has room.
func offer(queue chan<- *Envelope, env *Envelope) bool {
	select {
	case queue <- env:
		return true
	default:
		return false
	}
}
