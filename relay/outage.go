package relay

import (
	"log/slog"
	"maps"
	"sync"
	"time"
)

const (
	// firstBackoff is the first time for which events are deferred.
	firstBackoff = time.Second
	// quiet is the least time from the end of an outage to the report of the next outage. Otherwise
	// a queue that is full every other second would write a line each time.
	quiet = time.Minute
	// forgotten is how long a topic that is away stays known without a call that tries the topic.
	// Its events may have gone out from another node.
	forgotten = time.Minute
)

// outage records which topics are away: all topics when the broker is away, or a topic whose stream
// or queue is full. A single call in each backoff tries a topic, and the events of the other calls
// are deferred at once, so that they take no room in the queues. The log and the metrics get a
// single report for all topics.
type outage struct {
	longest time.Duration
	log     *slog.Logger
	changed func(away bool) // for the metrics

	mu       sync.Mutex
	topics   map[string]*absence // the topics that are away
	began    time.Time           // when the first topic went away
	ended    time.Time           // when the last report ended
	reported bool
}

// absence is the absence of a topic.
type absence struct {
	failures int       // one after the other
	next     time.Time // when a call tries the topic again
}

// trial is whether a call may try a topic.
type trial struct {
	turn int           // for [outage.failed]
	wait time.Duration // 0: the call may try; else for how long to defer the events
}

func (o *outage) try(topic string) trial {
	o.mu.Lock()
	defer o.mu.Unlock()
	a := o.topics[topic]
	if a == nil {
		return trial{}
	}
	wait := max(time.Until(a.next), 0)
	if wait == 0 {
		a.next = time.Now().Add(o.backoff(a)) // other calls wait for this call
	}
	return trial{turn: a.failures, wait: wait}
}

// failed says that the call of a turn found the topic away, and returns for how long to defer. Of
// calls that ran side by side only the first counts.
func (o *outage) failed(topic string, turn int, err error) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.topics) == 0 {
		o.began = time.Now()
	}
	a := o.topics[topic]
	if a == nil {
		a = &absence{}
		o.topics[topic] = a
	}
	if a.failures == 0 || turn == a.failures {
		a.failures++
		a.next = time.Now().Add(o.backoff(a))
	}
	if !o.reported && time.Since(o.ended) >= quiet {
		o.reported = true
		o.changed(true)
		o.log.Warn("relay: the broker is not available; events stay in the outbox", "error", err)
	}
	return max(time.Until(a.next), time.Millisecond)
}

// backoff is a second, doubled with each further failure.
func (o *outage) backoff(a *absence) time.Duration {
	return min(firstBackoff<<min(a.failures-1, 20), o.longest)
}

// answered says for which topics the broker has answered, while no message for them was
// unavailable.
func (o *outage) answered(topics map[string]bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.topics) == 0 {
		return
	}
	maps.DeleteFunc(o.topics, func(topic string, a *absence) bool {
		return topics[topic] || time.Since(a.next) > forgotten
	})
	if len(o.topics) > 0 || !o.reported {
		return
	}
	o.reported, o.ended = false, time.Now()
	o.changed(false)
	o.log.Info("relay: the broker is available again", "lasted", time.Since(o.began).Round(time.Millisecond).String())
}
