// Package flow has bounded queues, which ask for more elements when they have room. An element is
// not the zero value of its type: a take returns the zero value when there is no element.
package flow

import (
	"sync/atomic"

	"github.com/outboxkit/outbox-go/outbox/internal/wait"
)

// Options configure a [Queue].
type Options[T any] struct {
	Capacity int // how many elements wait at most
	Spare    int // the room beyond Capacity, for [Queue.Push]
	// Wake gets a token when the queue falls to LowWater, if [Queue.IsFull] reported true before.
	LowWater int
	Wake     chan<- struct{}
	// Weight is how many elements an element counts for. Nil: one.
	Weight func(T) int64
}

// Queue is a bounded queue. A Queue is safe for concurrent use.
type Queue[T any] struct {
	Options[T]
	elements chan T
	bound    atomic.Int64 // Capacity, or less
	beside   atomic.Int64 // what counts beside the elements in the channel
	waiting  atomic.Bool  // for LowWater
}

// New makes a queue.
func New[T any](o Options[T]) *Queue[T] {
	q := &Queue[T]{Options: o, elements: make(chan T, o.Capacity+o.Spare)}
	q.bound.Store(int64(o.Capacity))
	return q
}

// Depth is how many elements wait, by their weights.
func (q *Queue[T]) Depth() int { return len(q.elements) + int(q.beside.Load()) }

// Bound lets fewer elements wait than Capacity from now on. Elements that wait stay.
func (q *Queue[T]) Bound(n int) {
	q.bound.Store(int64(min(n, q.Capacity)))
	q.tellRoom()
}

// Room is the room for further elements.
func (q *Queue[T]) Room() int { return max(int(q.bound.Load())-q.Depth(), 0) }

// Offer puts an element into the queue if the queue has room.
func (q *Queue[T]) Offer(x T) bool { return q.Depth() < int(q.bound.Load()) && q.Push(x) }

// Push is Offer for an element that is not to be refused, unless Spare is used up too.
func (q *Queue[T]) Push(x T) bool {
	q.count(x, 1)
	select {
	case q.elements <- x:
		return true
	default:
		q.count(x, -1)
		return false
	}
}

// count adds the weight of an element beyond the place that the element has in the channel.
func (q *Queue[T]) count(x T, times int64) {
	if q.Weight == nil {
		return
	}
	if more := q.Weight(x) - 1; more != 0 {
		q.beside.Add(times * more)
	}
}

// Elsewhere says that n elements that were taken wait elsewhere, and count as if they were in the
// queue. They count until Elsewhere is called with -n.
func (q *Queue[T]) Elsewhere(n int64) {
	q.beside.Add(n)
	q.tellRoom()
}

// IsFull reports whether the queue is above LowWater. If so, Wake gets a token when the queue falls
// to LowWater. A queue with a bound of zero is always full.
func (q *Queue[T]) IsFull() bool {
	if q.isLow() {
		return false
	}
	q.waiting.Store(true)
	q.tellRoom() // the last element may have been taken in between
	return q.waiting.Load()
}

// isLow reports whether the queue is at LowWater, or half empty if it has a bound.
func (q *Queue[T]) isLow() bool {
	low := q.LowWater
	switch bound := int(q.bound.Load()); {
	case bound == 0:
		return false
	case bound < q.Capacity:
		low = min(low, bound/2)
	}
	return q.Depth() <= low
}

func (q *Queue[T]) tellRoom() {
	if q.isLow() && q.waiting.CompareAndSwap(true, false) {
		wait.Signal(q.Wake)
	}
}

// Take waits for the next element. After quit is closed, Take returns the elements that are left,
// and then the zero value; after abort is closed, the zero value at once.
func (q *Queue[T]) Take(quit, abort <-chan struct{}) (none T) {
	select {
	case <-abort:
		return none
	default:
	}
	select {
	case x := <-q.elements:
		return q.took(x)
	case <-quit:
		return q.TakeLeft()
	}
}

// TakeLeft takes without waiting; the zero value when the queue is empty.
func (q *Queue[T]) TakeLeft() (none T) {
	select {
	case x := <-q.elements:
		return q.took(x)
	default:
		return none
	}
}

func (q *Queue[T]) took(x T) T {
	q.count(x, -1)
	q.tellRoom()
	return x
}
