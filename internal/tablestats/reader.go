// Package tablestats reads an outbox's table for the metrics adapters: at most every 15
// seconds, however often metrics are collected, and without delaying a collection.
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
	// ReadInterval is the least time between reads, however often values are
	// requested.
	ReadInterval = 15 * time.Second
	// ReadTimeout ends a read that the database does not answer.
	ReadTimeout = 5 * time.Second
	// Wait is how long a caller waits for a read.
	Wait = time.Second
	// MaxAge is the greatest age of the values that a caller gets while the next
	// read is not done.
	MaxAge = 5 * time.Minute
)

// Source is the source that a [Reader] reads, such as an [*outbox.Outbox].
type Source interface {
	Stats(ctx context.Context) (outbox.Stats, error)
}

// Reader keeps the result of the last read of a table. A Reader has a goroutine only while it
// reads, and is safe for concurrent use.
type Reader struct {
	source Source
	onRead func(stats outbox.Stats, err error)

	ctx    context.Context // of the reads; the context ends when the reader is closed
	cancel context.CancelFunc

	mu      sync.Mutex
	closed  bool
	began   time.Time     // the last read
	reading chan struct{} // closed when the running read ends; nil when no read runs
	stats   *outbox.Stats // of the last read; nil when it failed
	at      time.Time     // when stats were read
	failed  int           // reads so far
}

// NewReader makes a reader of the source for the metrics that watch it. A nil source is an
// [outbox.FieldError], and so is an outbox that has no metrics or other metrics of the same type;
// metrics of another type may pass on to these metrics. onRead gets the result of each read, one at
// a time, except of a read that Close ends.
func NewReader(metrics outbox.Metrics, source Source, onRead func(stats outbox.Stats, err error)) (*Reader, error) {
	if v := reflect.ValueOf(source); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, &outbox.FieldError{Field: "WatchTable.source", Problem: "is nil; give the outbox"}
	}
	if o, ok := source.(interface{ Metrics() outbox.Metrics }); ok {
		if problem := counting(o.Metrics(), metrics); problem != "" {
			return nil, &outbox.FieldError{Field: "WatchTable.source", Problem: problem}
		}
	}
	r := &Reader{source: source, onRead: onRead}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r, nil
}

// counting returns why an outbox with the metrics given does not count with own.
func counting(given, own outbox.Metrics) string {
	switch _, none := given.(outbox.NopMetrics); {
	case none:
		return "is an outbox without metrics; set its Config.Metrics to the ones that watch it"
	case reflect.TypeOf(given) == reflect.TypeOf(own) && given != own:
		return "is an outbox with other metrics; watch it with those of its Config.Metrics, and make metrics for each outbox"
	default:
		return ""
	}
}

// Values are the known values of the table.
type Values struct {
	Up     bool          // the last read succeeded, and no read is stuck
	Stats  *outbox.Stats // nil when not up, and when the values are too old
	At     time.Time     // when Stats were read
	Failed int           // reads so far
}

// Values begins a read if a read is due, and waits for the running read for at most [Wait] or until
// ctx ends. False: the reader is closed.
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

// begin starts a read if a read is due, and returns the channel that the running read will close;
// nil if no read runs. False: the reader is closed.
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

// read reads the table once. While a read ignores the end of its context, no other read begins:
// reads that are stuck block a single connection, not a connection per read.
func (r *Reader) read(done chan struct{}) {
	defer close(done)
	ctx, cancel := context.WithTimeout(r.ctx, ReadTimeout)
	defer cancel()
	stats, err := r.ask(ctx)
	at := time.Now()
	if r.ctx.Err() == nil {
		r.onRead(stats, err)
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

// ask reads the source. A panic becomes an error.
func (r *Reader) ask(ctx context.Context) (stats outbox.Stats, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &outbox.PanicError{Value: p, Stack: debug.Stack()}
		}
	}()
	return r.source.Stats(ctx)
}

// Close ends a running read and waits briefly for it, so that the database can be closed next.
// Callers that wait for values get no values.
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
