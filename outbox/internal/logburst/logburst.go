// Package logburst sums up log lines that may occur very often, as in an outage.
package logburst

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// The keys of the attributes that the lines of a burst have.
const (
	keyCount  = "count"  // of the occurrences that a line stands for
	keyLasted = "lasted" // from the first occurrence to the end
)

const (
	// pause is how long a burst collects occurrences after it wrote a line.
	pause = time.Minute
	// apart is how many causes are summed up apart at the same time.
	apart = 100
)

// Burst limits the lines of a message. A Burst writes the first occurrence at once, and the
// occurrences of the next minute as a single line after that minute. If the message has an end, the
// end has a line too. The counts of all lines add up to the number of occurrences.
//
// Set the fields before the first use. A Burst is safe for concurrent use.
type Burst struct {
	Log     *slog.Logger
	Level   slog.Level
	Message string
	Ended   string // the message of the end; empty: no line

	single  int         // occurrences of a minute that have their own line, beside the first
	failing atomic.Bool // Add was called, and End was not called since

	mu    sync.Mutex
	timer *time.Timer // runs for a minute after each line
	wrote bool        // a line was written since the last end
	began time.Time   // when failing became true
	lines int         // written since the timer was set, beside the first
	count int         // of occurrences without a line
	attrs []any       // of the last such occurrence
}

// Add counts more occurrences. A line that sums up has the attributes of the last
// occurrence. Add calls the log handler without a lock: the handler may block, or cause an
// occurrence itself.
func (b *Burst) Add(count int, attrs ...any) {
	if b.note(count, attrs) {
		b.write(count, attrs)
	}
}

// note counts more occurrences, and reports whether they have their own line, which the caller
// writes.
func (b *Burst) note(count int, attrs []any) (line bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.failing.Swap(true) {
		b.began = time.Now()
	}
	switch {
	case b.timer == nil:
		b.timer = time.AfterFunc(pause, b.tick)
		b.wrote = true
		return true
	case b.lines < b.single:
		b.lines++
		return true
	default:
		b.count += count
		b.attrs = attrs
		return false
	}
}

// tick is called at the end of a minute.
func (b *Burst) tick() {
	b.mu.Lock()
	b.lines = 0
	if b.count == 0 || b.timer == nil {
		b.timer = nil
		b.mu.Unlock()
		return
	}
	count, attrs := b.take()
	b.timer.Reset(pause)
	b.wrote = b.failing.Load()
	b.mu.Unlock()
	b.write(count, attrs)
}

// End says that the failure is over. End writes the last line, at INFO, if a line reported the
// failure: a failure that begins and ends within a minute of another failure is summed up. End
// costs nothing when nothing failed.
func (b *Burst) End() {
	if !b.failing.Load() {
		return
	}
	b.mu.Lock()
	b.failing.Store(false)
	wrote, lasted := b.wrote, time.Since(b.began)
	b.wrote = false
	b.mu.Unlock()
	if wrote && b.Ended != "" {
		b.Log.Info(b.Ended, keyLasted, lasted.Round(time.Millisecond).String())
	}
}

// Flush writes the collected occurrences now, when the outbox closes.
func (b *Burst) Flush() {
	b.mu.Lock()
	if b.timer != nil {
		b.timer.Stop()
		b.timer = nil
	}
	count, attrs := b.take()
	b.mu.Unlock()
	if count > 0 {
		b.write(count, attrs)
	}
}

// idle reports whether nothing is collected.
func (b *Burst) idle() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.timer == nil
}

func (b *Burst) take() (count int, attrs []any) {
	count, attrs = b.count, b.attrs
	b.count, b.attrs = 0, nil
	return count, attrs
}

func (b *Burst) write(count int, attrs []any) {
	b.Log.Log(context.Background(), b.Level, b.Message, append([]any{keyCount, count}, attrs...)...)
}

// ByCause sums up a message by cause, such as the kind of event and the reason of its
// failure: thousands of events that fail for the same reason need few lines.
//
// Set the fields before the first use. A ByCause is safe for concurrent use.
type ByCause struct {
	Log     *slog.Logger
	Level   slog.Level
	Message string
	Single  int // occurrences of a cause in a minute that have their own line; at least 1

	mu      sync.Mutex
	byCause map[string]*Burst
}

// Add counts an occurrence. The attributes belong to the line of this occurrence, or to a line that
// sums up, if this occurrence is the last of its cause.
func (b *ByCause) Add(cause string, attrs ...any) {
	b.mu.Lock()
	found := b.byCause[cause]
	if found == nil && len(b.byCause) >= apart {
		maps.DeleteFunc(b.byCause, func(_ string, other *Burst) bool { return other.idle() })
	}
	if found == nil && len(b.byCause) >= apart {
		cause = "" // of all further causes
		found = b.byCause[cause]
	}
	if found == nil {
		if b.byCause == nil {
			b.byCause = map[string]*Burst{}
		}
		found = &Burst{Log: b.Log, Level: b.Level, Message: b.Message, single: b.Single - 1}
		b.byCause[cause] = found
	}
	line := found.note(1, attrs) // under the lock: else another cause may take the place of found as idle
	b.mu.Unlock()
	if line {
		found.write(1, attrs)
	}
}

// Flush writes the collected occurrences of all causes, when the outbox closes.
func (b *ByCause) Flush() {
	b.mu.Lock()
	all := slices.Collect(maps.Values(b.byCause))
	b.mu.Unlock()
	for _, burst := range all {
		burst.Flush()
	}
}
