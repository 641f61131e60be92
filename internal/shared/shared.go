// Package shared keeps values that many requests read from the database.
package shared

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Value is a value that many requests read from the database. Requests that come while the value is read
// wait for the same reading, and a value is shown again for a while, so the number of readers does not
// matter to the database.
type Value[T any] struct {
	mu   sync.Mutex
	last *reading[T]
	// changed is when the value was last forgotten.
	changed time.Time
}

// reading is a read of a shared value. Value and error are valid when done is closed.
type reading[T any] struct {
	began time.Time
	done  chan struct{}
	value T
	err   error
}

var errBroken = errors.New("outbox: a read of a shared value panicked")

// Get returns a value that was read at most an age ago, or reads it. The read goes on if the request is
// canceled, because others may wait for it, but ends at the deadline of the request that began it. If it
// fails, a request that waited reads the value itself.
func (s *Value[T]) Get(ctx context.Context, age time.Duration, read func(context.Context) (T, error)) (value T, err error) {
	for {
		r, isOwn := s.reading(age)
		if isOwn {
			defer close(r.done)
			going := context.WithoutCancel(ctx)
			if deadline, has := ctx.Deadline(); has {
				var cancel context.CancelFunc
				going, cancel = context.WithDeadline(going, deadline)
				defer cancel()
			}
			r.value, r.err = read(going)
			if r.err != nil && going.Err() != nil {
				<-ctx.Done() // it has the same deadline: the caller asks it why the read failed
			}
			return r.value, r.err
		}
		select {
		case <-r.done:
			if r.err == nil {
				return r.value, nil
			}
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			return value, ctx.Err()
		}
	}
}

// reading returns the reading to wait for, or a new reading that the caller makes.
func (s *Value[T]) reading(age time.Duration) (r *reading[T], isOwn bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last != nil && !s.last.isOver(age) {
		return s.last, false
	}
	s.last = &reading[T]{began: time.Now(), done: make(chan struct{}), err: errBroken}
	return s.last, true
}

// isOver reports whether a reading has ended and is of no more use.
func (r *reading[T]) isOver(age time.Duration) bool {
	select {
	case <-r.done:
		return r.err != nil || time.Since(r.began) >= age
	default:
		return false
	}
}

// Set sets a value that was read otherwise, unless the value was forgotten since the read began.
func (s *Value[T]) Set(began time.Time, value T) {
	r := &reading[T]{began: began, done: make(chan struct{}), value: value}
	close(r.done)
	s.mu.Lock()
	defer s.mu.Unlock()
	if began.After(s.changed) {
		s.last = r
	}
}

// Forget makes the next request read the value again.
func (s *Value[T]) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last, s.changed = nil, time.Now()
}
