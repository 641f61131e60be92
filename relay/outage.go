package relay

import (
	"log/slog"
	"sync"
	"time"
)

// firstBackoff is the first time for which events are deferred.
const firstBackoff = time.Second

// outage is what the relay knows about the broker being away. Meanwhile one call in each
// backoff tries the broker, and the events of the others are deferred at once: they keep
// no place in the queues, and the log has two lines, whatever the backlog.
type outage struct {
	longest time.Duration
	log     *slog.Logger
	changed func(away bool) // for the metrics

	mu       sync.Mutex
	failures int       // one after the other; 0: the broker is there
	began    time.Time // when the first of them was
	next     time.Time // when a call tries the broker again
}

// try asks whether a call may try the broker. If not, wait is for how long to defer its
// events. turn is for [outage.failed].
func (o *outage) try() (turn int, wait time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failures > 0 {
		if wait = time.Until(o.next); wait <= 0 {
			o.next = time.Now().Add(o.backoff()) // the other calls wait for this one
		}
	}
	return o.failures, max(wait, 0)
}

// failed says that the call of a turn found the broker away. It returns for how long to
// defer. Of calls that ran side by side the first one counts.
func (o *outage) failed(turn int, err error) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	if turn == o.failures {
		if o.failures++; o.failures == 1 {
			o.began = time.Now()
			o.changed(true)
			o.log.Warn("relay: the broker is not available; events stay in the outbox", "error", err)
		}
		o.next = time.Now().Add(o.backoff())
	}
	return max(time.Until(o.next), time.Millisecond)
}

// backoff is a second, and twice the last one for each further failure.
func (o *outage) backoff() time.Duration {
	return min(firstBackoff<<min(max(o.failures-1, 0), 20), o.longest)
}

// ended says that the broker has acknowledged a message.
func (o *outage) ended() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failures == 0 {
		return
	}
	o.failures = 0
	o.changed(false)
	o.log.Info("relay: the broker is available again", "duration", time.Since(o.began).Round(time.Millisecond))
}
