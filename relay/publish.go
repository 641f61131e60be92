package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// Publish publishes events without an outbox, for what reads the table in its place, such
// as change data capture. The events of one topic and key are published in the order of
// the batch. It returns one result for each event: [outbox.Done] when the broker has
// acknowledged it, [outbox.RetryAfter] when it was not published because the broker is
// away or an earlier event of its key failed, else an error. It is safe for concurrent
// use.
func (r *Relay) Publish(ctx context.Context, batch []outbox.Envelope) []outbox.Result {
	return r.publish(ctx, batch, func(pending, pending) int { return 0 })
}

// listen is the batch listener. Events of a batch have no order, so it is that in which
// they happened.
func (r *Relay) listen(ctx context.Context, batch []outbox.Envelope) ([]outbox.Result, error) {
	return r.publish(ctx, batch, func(x, y pending) int {
		return cmp.Or(x.message.Time.Compare(y.message.Time), strings.Compare(x.message.ID, y.message.ID))
	}), nil
}

// publish publishes a batch. The messages of one key go out in rounds, one of each key in
// a round, so that no broker can deliver a later one before one that failed.
func (r *Relay) publish(ctx context.Context, batch []outbox.Envelope, order func(x, y pending) int) []outbox.Result {
	turn, wait := r.outage.try()
	if wait > 0 {
		return slices.Repeat([]outbox.Result{outbox.RetryAfter(wait)}, len(batch))
	}
	b := &job{r: r, turn: turn, events: batch, results: make([]outbox.Result, len(batch))}
	left := b.messages()
	slices.SortStableFunc(left, order)
	for len(left) > 0 {
		left = b.round(ctx, left)
	}
	return b.results
}

// job is one call of the listener.
type job struct {
	r       *Relay
	turn    int // of the outage
	events  []outbox.Envelope
	results []outbox.Result
}

// pending is a message that is to be published.
type pending struct {
	index   int // in the batch
	message Message
}

// place is what messages are ordered within.
type place struct{ topic, key string }

// messages are those of the batch. An event without a route fails: only Publish can get one.
func (b *job) messages() []pending {
	var list []pending
	for i, env := range b.events {
		kind := outbox.EventKind{AggregateType: env.AggregateType, EventType: env.EventType}
		to := b.r.routes[kind]
		if to == nil {
			b.fail(i, "", fmt.Errorf("%w: no route has %s", ErrUnroutable, kind))
			continue
		}
		m, err := b.r.message(env, to)
		if err != nil {
			b.fail(i, m.Topic, err)
			continue
		}
		list = append(list, pending{i, m})
	}
	return list
}

// round publishes the first message of each place, and those without a key. It returns
// those that the next round is for.
func (b *job) round(ctx context.Context, list []pending) (left []pending) {
	var now []pending
	taken := map[place]bool{}
	for _, p := range list {
		at := place{p.message.Topic, p.message.Key}
		if at.key != "" && taken[at] {
			left = append(left, p)
			continue
		}
		taken[at] = true
		now = append(now, p)
	}
	failed, away := b.call(ctx, now)
	if away > 0 {
		for _, p := range left {
			b.results[p.index] = outbox.RetryAfter(away)
		}
		return nil
	}
	return slices.DeleteFunc(left, func(p pending) bool {
		behind := failed[place{p.message.Topic, p.message.Key}]
		if behind {
			b.results[p.index] = outbox.RetryAfter(firstBackoff)
		}
		return behind
	})
}

// call publishes messages and stores their results. It returns the places that have a
// failure, and for how long events are deferred when the broker is away.
func (b *job) call(ctx context.Context, list []pending) (failed map[place]bool, away time.Duration) {
	messages := make([]Message, len(list))
	for i := range list {
		messages[i] = list[i].message
	}
	began := time.Now()
	within, cancel := context.WithTimeout(ctx, b.r.cfg.Timeout)
	errs := b.r.cfg.Publisher.Publish(within, messages)
	cancel()
	if errs != nil && len(errs) != len(list) {
		err := fmt.Errorf("the publisher returned %d errors for %d messages", len(errs), len(list))
		errs = slices.Repeat([]error{err}, len(list))
	}
	b.observe(messages, errs, time.Since(began))
	failed = map[place]bool{}
	for i := range errs {
		p, err := list[i], errs[i]
		switch {
		case err == nil:
			continue
		case ctx.Err() != nil: // the outbox closes, or ends the call
			b.results[p.index] = outbox.ResultOf(ctx.Err())
		case errors.Is(err, ErrUnavailable) || errors.Is(err, context.DeadlineExceeded):
			away = b.r.outage.failed(b.turn, err)
			b.results[p.index] = outbox.RetryAfter(away)
		default:
			b.fail(p.index, p.message.Topic, err)
		}
		failed[place{p.message.Topic, p.message.Key}] = true
	}
	if away == 0 && len(failed) < len(list) {
		b.r.outage.ended()
	}
	return failed, away
}

// fail stores the result of a message that the broker, or its route, did not take.
func (b *job) fail(index int, topic string, err error) {
	err = fmt.Errorf("relay: publishing event %s to %q: %w", b.events[index].EventID, topic, err)
	if errors.Is(err, ErrRefused) {
		err = outbox.Unrecoverable(err)
	}
	b.results[index] = outbox.ResultOf(err)
}

// observe tells the config's function what a call came to.
func (b *job) observe(messages []Message, errs []error, d time.Duration) {
	if b.r.cfg.OnPublished == nil {
		return
	}
	var topics []Published
	for i, m := range messages {
		at := slices.IndexFunc(topics, func(p Published) bool { return p.Topic == m.Topic })
		if at < 0 {
			at = len(topics)
			topics = append(topics, Published{Topic: m.Topic, Duration: d})
		}
		if errs != nil && errs[i] != nil {
			topics[at].Failed++
		} else {
			topics[at].Acknowledged++
		}
	}
	for _, p := range topics {
		b.r.cfg.OnPublished(p)
	}
}
