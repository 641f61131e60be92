package outbox

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// burstPause is how long equal lines are held back after one was written.
const burstPause = time.Second

// burst writes the lines of one message that may come in masses, such as those
// of a full queue: the first at once, and what follows within a second as one
// line when that is over. The counts of the lines add up to what happened.
type burst struct {
	log     *slog.Logger
	level   slog.Level
	message string

	mu    sync.Mutex
	timer *time.Timer // runs for a second after each line
	count int         // held back
	attrs []any       // of the last that was held back
}

// add tells that it happened count times more. The attributes of a line that
// sums up are those of the last. The handler is called without a lock: it may
// block, or itself do what is logged here.
func (b *burst) add(count int, attrs ...any) {
	b.mu.Lock()
	if b.timer != nil {
		b.count += count
		b.attrs = attrs
		b.mu.Unlock()
		return
	}
	b.timer = time.AfterFunc(burstPause, b.tick)
	b.mu.Unlock()
	b.write(count, attrs)
}

// tick ends a second.
func (b *burst) tick() {
	b.mu.Lock()
	if b.count == 0 || b.timer == nil {
		b.timer = nil
		b.mu.Unlock()
		return
	}
	count, attrs := b.take()
	b.timer.Reset(burstPause)
	b.mu.Unlock()
	b.write(count, attrs)
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
