package outbox

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// burstPause is how long a burst collects occurrences after it wrote a line.
const burstPause = time.Minute

// burst limits the lines of a message that may occur very often, as in an outage. It
// writes the first occurrence at once, and those of the next minute as one line after
// that minute. If the message has an end, that is a line too. The counts of all lines
// add up to the number of occurrences.
type burst struct {
	log     *slog.Logger
	level   slog.Level
	message string
	ended   string // the message of the end; empty for none
	single  int    // so many occurrences of a minute have a line each, beside the first

	failing atomic.Bool // add was called, and end was not called since

	mu    sync.Mutex
	timer *time.Timer // runs for a minute after each line
	wrote bool        // a line was written since the last end
	began time.Time   // when failing became true
	lines int         // written since the timer was set, beside the first
	count int         // of occurrences that no line has
	attrs []any       // of the last of them
}

// add counts more occurrences. A line that sums up has the attributes of the last
// one. The log handler is called without a lock: it may block, or cause an occurrence
// itself.
func (b *burst) add(count int, attrs ...any) {
	if b.note(count, attrs) {
		b.write(count, attrs)
	}
}

// note counts more occurrences. It reports whether they have a line of their own, which
// the caller writes.
func (b *burst) note(count int, attrs []any) (line bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.failing.Swap(true) {
		b.began = time.Now()
	}
	switch {
	case b.timer == nil:
		b.timer = time.AfterFunc(burstPause, b.tick)
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
func (b *burst) tick() {
	b.mu.Lock()
	b.lines = 0
	if b.count == 0 || b.timer == nil {
		b.timer = nil
		b.mu.Unlock()
		return
	}
	count, attrs := b.take()
	b.timer.Reset(burstPause)
	b.wrote = b.failing.Load()
	b.mu.Unlock()
	b.write(count, attrs)
}

// end says that the failure is over. It writes the last line, at INFO, if a line
// reported the failure: one that begins and ends within a minute of another is summed
// up. It costs nothing when nothing failed.
func (b *burst) end() {
	if !b.failing.Load() {
		return
	}
	b.mu.Lock()
	b.failing.Store(false)
	wrote, lasted := b.wrote, time.Since(b.began)
	b.wrote = false
	b.mu.Unlock()
	if wrote && b.ended != "" {
		b.log.Info(b.ended, logKeyLasted, durationText(lasted))
	}
}

// flush writes the collected occurrences now, when the outbox closes.
func (b *burst) flush() {
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
func (b *burst) idle() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.timer == nil
}

func (b *burst) take() (count int, attrs []any) {
	count, attrs = b.count, b.attrs
	b.count, b.attrs = 0, nil
	return count, attrs
}

func (b *burst) write(count int, attrs []any) {
	b.log.Log(context.Background(), b.level, b.message, append([]any{logKeyCount, count}, attrs...)...)
}

const (
	// causeLines is how many failures of a cause have a line each in a minute: enough to see
	// a few events and their ids.
	causeLines = 10
	// causesApart is how many causes are summed up apart at the same time.
	causesApart = 100
)

// bursts sums up a message by cause, such as the kind of event and the reason of its
// failure: thousands of events that fail for one reason need no thousands of lines.
type bursts struct {
	log     *slog.Logger
	level   slog.Level
	message string
	single  int // so many occurrences of a cause in a minute have a line each

	mu      sync.Mutex
	byCause map[string]*burst
}

// add counts one occurrence. Its attributes are those of its line, or of a line that sums
// up, if it is the last one of its cause.
func (b *bursts) add(cause string, attrs ...any) {
	b.mu.Lock()
	found := b.byCause[cause]
	if found == nil && len(b.byCause) >= causesApart {
		maps.DeleteFunc(b.byCause, func(_ string, other *burst) bool { return other.idle() })
	}
	if found == nil && len(b.byCause) >= causesApart {
		cause = "" // of all further causes
		found = b.byCause[cause]
	}
	if found == nil {
		if b.byCause == nil {
			b.byCause = map[string]*burst{}
		}
		found = &burst{log: b.log, level: b.level, message: b.message, single: b.single - 1}
		b.byCause[cause] = found
	}
	line := found.note(1, attrs) // under the lock: another cause may not take its place as idle
	b.mu.Unlock()
	if line {
		found.write(1, attrs)
	}
}

// flush writes what is collected, when the outbox closes.
func (b *bursts) flush() {
	b.mu.Lock()
	all := slices.Collect(maps.Values(b.byCause))
	b.mu.Unlock()
	for _, one := range all {
		one.flush()
	}
}
