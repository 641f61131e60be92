package flow

import (
	"sync"
	"sync/atomic"

	"github.com/outboxkit/outbox-go/outbox/internal/wait"
)

// Lane is a queue that counts the elements that are left outside for lack of room. A single filler
// then puts elements in, so that the oldest elements come first, and asks IsFull before.
type Lane[T any] struct {
	*Queue[T]
	left    atomic.Int64
	filling sync.Mutex // many offer at the same time
}

// NewLane makes a lane.
func NewLane[T any](o Options[T]) *Lane[T] { return &Lane[T]{Queue: New(o)} }

// Offer puts an element into the lane if the lane has room. With Spare, the channel has room for
// more elements than that, so Offer counts and puts under a lock.
func (l *Lane[T]) Offer(x T) bool {
	l.filling.Lock()
	defer l.filling.Unlock()
	return l.Queue.Offer(x)
}

// Leave counts an element that stays outside.
func (l *Lane[T]) Leave() {
	l.left.Add(1)
	if !l.IsFull() {
		wait.Signal(l.Wake)
	}
}

// Left is how many elements were left outside.
func (l *Lane[T]) Left() int64 { return l.left.Load() }

// Filled says that the lane got the elements of which Left returned the number, if no element was
// left outside since.
func (l *Lane[T]) Filled(left int64) { l.left.CompareAndSwap(left, 0) }
