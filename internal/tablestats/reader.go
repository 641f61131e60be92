// Package tablestats reads what an outbox's table holds for the adapters that
// show it: seldom, however often they are asked, and without holding them up.
package tablestats

import (
	"context"
	"errors"
	"reflect"
	"runtime/debug"
	"sync"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// How the table is read.
const (
	// ReadInterval is how often at most, however often it is asked for.
	ReadInterval = 15 * time.Second
	// ReadTimeout ends a read that the database does not answer.
	ReadTimeout = 5 * time.Second
	// Wait is how long who asks waits for a read.
	Wait = time.Second
	// MaxAge is how old values may be that are given because the next read is
	// not through yet: who asks seldom gets those of the time before.
	MaxAge = 5 * time.Minute
)

// Source is what is read; an [*outbox.Outbox] is one.
type Source interface {
	Stats(ctx context.Context) (outbox.Stats, error)
}

// Reader keeps what the last read of a table brought. It has no goroutine but
// while it reads. It is safe for concurrent use.
type Reader struct {
	source Source
	told   func(stats outbox.Stats, err error)

	ctx    context.Context // of the reads; it ends when the reader is closed
	cancel context.CancelFunc

	mu      sync.Mutex
	closed  bool
	began   time.Time     // the last read
	reading chan struct{} // closed when the read under way ends; nil when none is
	stats   *outbox.Stats // of the last read; nil when it failed
	at      time.Time     // when stats were read
	failed  int           // reads so far
}

// NewReader makes a reader of the source, which it refuses with an
// [outbox.FieldError] when it is nil. The function is told what each read
// brings, one after the other, but for a read that closing ends.
func NewReader(source Source, told func(stats outbox.Stats, err error)) (*Reader, error) {
	if v := reflect.ValueOf(source); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, &outbox.FieldError{Field: "WatchTable.source", Problem: "is nil; give the outbox"}
	}
	r := &Reader{source: source, told: told}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r, nil
}

// Values are what is known of the table.
type Values struct {
	Up     bool          // the last read that should have ended succeeded
	Stats  *outbox.Stats // nil when not up, and when the values are too old
	At     time.Time     // when Stats were read
	Failed int           // reads so far
}

// Values begins a read if it is time, and waits for the read under way for at
// most [Wait] or until ctx ends. False: the reader is closed.
func (r *Reader) Values(ctx context.Context) (v Values, ok bool) {
	reading, ok := r.begin(time.Now())
	if !ok {
		return Values{}, false
	}
	if reading != nil {
		enough := time.NewTimer(Wait)
		defer enough.Stop()
		select {
		case <-reading:
		case <-enough.C:
		case <-ctx.Done():
		case <-r.ctx.Done():
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	stuck := r.reading != nil && time.Since(r.began) > ReadTimeout+Wait
	v = Values{Up: r.stats != nil && !stuck, At: r.at, Failed: r.failed}
	if v.Up && time.Since(v.At) <= MaxAge {
		v.Stats = r.stats
	}
	return v, !r.closed
}

// begin starts a read if it is time, and returns what the read under way will
// close; nil when there is none. False: the reader is closed.
func (r *Reader) begin(now time.Time) (reading <-chan struct{}, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, false
	}
	if r.reading == nil && (r.began.IsZero() || now.Sub(r.began) >= ReadInterval) {
		r.began, r.reading = now, make(chan struct{})
		go r.read(r.reading)
	}
	return r.reading, true
}

// read reads the table once. A read that does not even end when its context does
// keeps others from beginning: one connection is lost to it, not one a time.
func (r *Reader) read(done chan struct{}) {
	defer close(done)
	ctx, cancel := context.WithTimeout(r.ctx, ReadTimeout)
	defer cancel()
	stats, err := r.ask(ctx)
	at := time.Now()
	if r.ctx.Err() == nil {
		r.told(stats, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reading = nil
	if err != nil {
		r.stats = nil
		r.failed++
		return
	}
	r.stats, r.at = &stats, at
}

// ask keeps a source's panic from ending the process.
func (r *Reader) ask(ctx context.Context) (stats outbox.Stats, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &outbox.PanicError{Value: p, Stack: debug.Stack()}
		}
	}()
	return r.source.Stats(ctx)
}

// Close ends a read under way and waits for it a moment, so that the database
// can be closed next. Whoever waits for values gets none.
func (r *Reader) Close() error {
	r.mu.Lock()
	r.closed = true
	reading := r.reading
	r.mu.Unlock()
	r.cancel()
	if reading == nil {
		return nil
	}
	enough := time.NewTimer(Wait)
	defer enough.Stop()
	select {
	case <-reading:
		return nil
	case <-enough.C:
		return errors.New("a read of the table goes on although its context ended")
	}
}
