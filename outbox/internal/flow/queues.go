package flow

// Queues are queues with the same takers. While hot and other elements wait, a taker takes two hot
// elements for each other element. No taker sleeps while an element waits. Of the hot queue and the
// queue ahead, nothing waits for LowWater, and their elements have no weight.
type Queues[T any] struct {
	Hot *Queue[T]
	// Elements ahead go before cold elements when it is the turn of the cold elements.
	Ahead, Cold *Queue[T]
}

// Take is [Queue.Take] of several queues; turn counts the elements of a taker.
func (q *Queues[T]) Take(turn int, quit, abort <-chan struct{}) (none T) {
	select {
	case <-abort:
		return none
	default:
	}
	if turn%3 == 2 { // the cold queue's turn
		select {
		case x := <-q.Ahead.elements:
			return x
		default:
		}
		select {
		case x := <-q.Cold.elements:
			return q.Cold.took(x)
		default:
		}
	} else {
		select {
		case x := <-q.Hot.elements:
			return x
		default:
		}
	}
	select {
	case x := <-q.Hot.elements:
		return x
	case x := <-q.Ahead.elements:
		return x
	case x := <-q.Cold.elements:
		return q.Cold.took(x)
	case <-quit:
		return q.TakeLeft()
	}
}

// TakeLeft takes without waiting; the zero value when the queues are empty.
func (q *Queues[T]) TakeLeft() T {
	select {
	case x := <-q.Hot.elements:
		return x
	case x := <-q.Ahead.elements:
		return x
	default:
		return q.Cold.TakeLeft()
	}
}
