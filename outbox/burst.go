package outbox

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// burstPause is how long equal lines are held back after one was written.
const burstPause = time.Minute

// burst writes the lines of one message that may come in masses, such as those
// of an outage: the first at once, what follows within a minute as one line when
// that is over, and, where there is an end, a last one. The counts of the lines
// add up to what happened.
type burst struct {
	log     *slog.Logger
	level   slog.Level
	message string
	ended   string // the message of the end; empty: there is none

	failing atomic.Bool // add was called, and end was not since

	mu    sync.Mutex
	timer *time.Timer // runs for a minute after each line
	told  bool        // a line was written since the last end
	began time.Time   // when failing became true
	count int         // held back
	attrs []any       // of the last that was held back
}

// add says that it happened count times more. The attributes of a line that
// sums up are those of the last. The handler is called without a lock: it may
// block, or itself do what is logged here.
func (b *burst) add(count int, attrs ...any) {
	b.mu.Lock()
	if !b.failing.Swap(true) {
		b.began = time.Now()
	}
	if b.timer != nil {
		b.count += count
		b.attrs = attrs
		b.mu.Unlock()
		return
	}
	b.timer = time.AfterFunc(burstPause, b.tick)
	b.told = true
	b.mu.Unlock()
	b.write(count, attrs)
}

// tick ends a minute.
func (b *burst) tick() {
	b.mu.Lock()
	if b.count == 0 || b.timer == nil {
		b.timer = nil
		b.mu.Unlock()
		return
	}
	count, attrs := b.take()
	b.timer.Reset(burstPause)
	b.told = b.failing.Load()
	b.mu.Unlock()
	b.write(count, attrs)
}

// end says that it is over. The last line, at INFO, is written when there was a
// first one: what comes and goes within a minute is summed up. It costs nothing
// when nothing happened.
func (b *burst) end() {
	if !b.failing.Load() {
		return
	}
	b.mu.Lock()
	b.failing.Store(false)
	told, lasted := b.told, time.Since(b.began)
	b.told = false
	b.mu.Unlock()
	if told && b.ended != "" {
		b.log.Info(b.ended, logKeyLasted, lasted.Round(time.Millisecond))
	}
}

// flush writes what is held back now: the end is near.
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

func (b *burst) take() (count int, attrs []any) {
	count, attrs = b.count, b.attrs
	b.count, b.attrs = 0, nil
	return count, attrs
}

func (b *burst) write(count int, attrs []any) {
	b.log.Log(context.Background(), b.level, b.message, append([]any{logKeyCount, count}, attrs...)...)
}
