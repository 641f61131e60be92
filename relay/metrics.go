package relay

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"
)

// Metrics receives a relay's figures. Embed [NopMetrics] to stay compatible when methods are added.
// Several goroutines call the methods at once: they must be fast and must not block. If Metrics is
// an [io.Closer], [Relay.Close] closes it. A panic is logged and has no other effect.
type Metrics interface {
	// Publishing: a call of the publisher begins with this many messages to a topic.
	Publishing(topic string, messages int)
	// Published: the call has ended for the topic.
	Published(p Published)
	// Outage: the broker is away for at least one topic, or it has answered for each topic again.
	// Two outages within a minute may count as a single outage, or the second outage is reported
	// when the minute is over.
	Outage(away bool)
}

// Published is the result of a call of the publisher for one topic: how many messages the broker
// acknowledged, and how many have an error of each class.
type Published struct {
	Topic                                                  string
	Acknowledged, Unavailable, Refused, Unroutable, Failed int
	// Duration is the duration of the whole call.
	Duration time.Duration
}

// Messages is how many messages the call had for the topic.
func (p Published) Messages() int {
	return p.Acknowledged + p.Unavailable + p.Refused + p.Unroutable + p.Failed
}

func (p *Published) count(err error) {
	switch {
	case err == nil:
		p.Acknowledged++
	case errors.Is(err, ErrRefused):
		p.Refused++
	case errors.Is(err, ErrUnroutable):
		p.Unroutable++
	case errors.Is(err, ErrUnavailable), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		p.Unavailable++
	default:
		p.Failed++
	}
}

// NopMetrics does nothing. Embed it.
type NopMetrics struct{}

// Publishing does nothing.
func (NopMetrics) Publishing(string, int) {}

// Published does nothing.
func (NopMetrics) Published(Published) {}

// Outage does nothing.
func (NopMetrics) Outage(bool) {}

// measure calls the config's metrics. A panic of the metrics must not fail messages that the broker
// has.
func (r *Relay) measure(report func(m Metrics)) {
	defer func() {
		if p := recover(); p != nil {
			r.cfg.Logger.Error("relay: the metrics panicked", "error", fmt.Sprint(p), "stack", string(debug.Stack()))
		}
	}()
	report(r.cfg.Metrics)
}

func (r *Relay) outageChanged(away bool) { r.measure(func(m Metrics) { m.Outage(away) }) }

// measurement is the measurement of a call of the publisher, by topic.
type measurement struct {
	r      *Relay
	topics []Published
	of     []int // the index of each message's topic
	began  time.Time
}

// began says that a call begins.
func (r *Relay) began(messages []Message) *measurement {
	m := &measurement{r: r, of: make([]int, len(messages)), began: time.Now()}
	var counts []int
	for i := range messages {
		at := slices.IndexFunc(m.topics, func(p Published) bool { return p.Topic == messages[i].Topic })
		if at < 0 {
			at = len(m.topics)
			m.topics, counts = append(m.topics, Published{Topic: messages[i].Topic}), append(counts, 0)
		}
		m.of[i] = at
		counts[at]++
	}
	for at, n := range counts {
		r.measure(func(to Metrics) { to.Publishing(m.topics[at].Topic, n) })
	}
	return m
}

// ended says how the call ended. errs is nil when all messages are acknowledged.
func (m *measurement) ended(errs []error) {
	d := time.Since(m.began)
	for i, at := range m.of {
		var err error
		if errs != nil {
			err = errs[i]
		}
		m.topics[at].count(err)
	}
	for _, p := range m.topics {
		p.Duration = d
		m.r.measure(func(to Metrics) { to.Published(p) })
	}
}
