package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// Publish publishes events without an outbox, for programs that read the table in place of an
// outbox, such as change data capture. The events of a key are published in the order of the batch.
// Publish returns an error for each event: nil when the broker has acknowledged the event,
// [outbox.Defer] when the event was not published because the broker is away or an earlier event of
// its key failed, else the failure. Publish is safe for concurrent use.
func (r *Relay) Publish(ctx context.Context, batch []outbox.Envelope) []error {
	return r.publish(ctx, batch, func(outbox.Envelope, outbox.Envelope) int { return 0 })
}

// listen is the batch listener. Events of a batch have no order, so they are published in the order
// in which they happened.
func (r *Relay) listen(ctx context.Context, batch []outbox.Envelope) ([]error, error) {
	return r.publish(ctx, batch, func(x, y outbox.Envelope) int {
		return cmp.Or(x.OccurredAt.Compare(y.OccurredAt), strings.Compare(x.EventID, y.EventID))
	}), nil
}

// publish publishes a batch. The messages of a key go out in rounds, a single message of each key
// in a round, so that no broker can deliver a later message before a message that failed.
func (r *Relay) publish(ctx context.Context, batch []outbox.Envelope, order func(x, y outbox.Envelope) int) []error {
	b := &job{r: r, events: batch, errs: make([]error, len(batch))}
	left := b.messages()
	slices.SortStableFunc(left, func(x, y pending) int { return order(batch[x.index], batch[y.index]) })
	for len(left) > 0 {
		if ctx.Err() != nil {
			b.stop(ctx, left)
			break
		}
		left = b.round(ctx, left)
	}
	return b.errs
}

// job is a batch that is being published.
type job struct {
	r      *Relay
	events []outbox.Envelope
	errs   []error
}

// pending is a message that is to be published, or the failure of the route.
type pending struct {
	index   int // in the batch
	turn    int // of the outage of its topic
	message Message
	err     error
}

// waits are the keys with a message that was not published, and for how long the rest of
// each key is deferred.
type waits map[string]time.Duration

// messages are the messages of the batch. Only Publish can get an event without a route.
func (b *job) messages() []pending {
	list := make([]pending, len(b.events))
	for i, env := range b.events {
		list[i].index = i
		kind := kindOf(env.AggregateType, env.EventType)
		if to := b.r.routes[kind]; to != nil {
			list[i].message, list[i].err = b.r.message(env, to)
			continue
		}
		list[i].message.Key = env.AggregateID
		list[i].err = fmt.Errorf("%w: no route has %s", ErrUnroutable, kind)
	}
	return list
}

// round publishes the first message of each key, and the messages without a key, and returns the
// messages for the next round.
func (b *job) round(ctx context.Context, list []pending) (left []pending) {
	now, left, failed := b.choose(list)
	b.publish(ctx, now, failed)
	return slices.DeleteFunc(left, func(p pending) bool {
		wait, behind := failed[p.message.Key]
		if behind {
			b.errs[p.index] = fmt.Errorf("relay: an earlier message of its key was not published: %w", outbox.Defer(wait))
		}
		return behind
	})
}

// choose chooses the messages of a round, and stores the errors of messages whose route failed or
// whose topic is away.
func (b *job) choose(list []pending) (now, left []pending, failed waits) {
	taken, trials := map[string]bool{}, map[string]trial{}
	failed = waits{}
	for _, p := range list {
		key, topic := p.message.Key, p.message.Topic
		if key != "" && taken[key] {
			left = append(left, p)
			continue
		}
		taken[key] = true
		if p.err != nil {
			b.fail(p, p.err)
			failed[key] = firstBackoff
			continue
		}
		t, asked := trials[topic]
		if !asked {
			t = b.r.outage.try(topic)
			trials[topic] = t
		}
		if t.wait > 0 {
			b.errs[p.index] = fmt.Errorf("relay: the broker is not available for %s: %w", topic, outbox.Defer(t.wait))
			failed[key] = t.wait
			continue
		}
		p.turn = t.turn
		now = append(now, p)
	}
	return now, left, failed
}

// publish publishes messages, stores their errors, and adds the keys that have a failure.
func (b *job) publish(ctx context.Context, list []pending, failed waits) {
	if len(list) == 0 {
		return
	}
	errs, end := b.send(ctx, list)
	answered, away := map[string]bool{}, map[string]bool{}
	for i, p := range list {
		key, topic := p.message.Key, p.message.Topic
		if errs == nil || errs[i] == nil {
			answered[topic] = true
			b.errs[p.index] = nil
			continue
		}
		err := errs[i]
		failed[key] = firstBackoff
		switch {
		case errors.Is(err, ErrRefused), errors.Is(err, ErrUnroutable):
			answered[topic] = true
			b.fail(p, err)
		case errors.Is(ctx.Err(), context.Canceled): // the outbox closes
			b.errs[p.index] = ctx.Err()
		case errors.Is(err, ErrUnavailable), errors.Is(err, context.DeadlineExceeded), end != nil:
			away[topic] = true
			err = b.describe(p, err)
			failed[key] = b.r.outage.failed(topic, p.turn, err)
			b.errs[p.index] = fmt.Errorf("%w: %w", err, outbox.Defer(failed[key]))
		default:
			answered[topic] = true
			b.fail(p, err)
		}
	}
	for topic := range away {
		delete(answered, topic)
	}
	b.r.outage.answered(answered)
}

// send calls the publisher. errs has an error for each message, or is nil. end is not nil
// when the time was up.
func (b *job) send(ctx context.Context, list []pending) (errs []error, end error) {
	messages := make([]Message, len(list))
	for i := range list {
		messages[i] = list[i].message
	}
	ctx, cancel := context.WithTimeout(ctx, b.r.cfg.Timeout)
	defer cancel()
	m := b.r.began(messages)
	errs, err := b.r.ask(ctx, messages)
	if err == nil && errs != nil && len(errs) != len(list) {
		err = fmt.Errorf("the publisher returned %d errors for %d messages", len(errs), len(list))
	}
	if err != nil {
		errs = slices.Repeat([]error{err}, len(list))
	}
	m.ended(errs)
	return errs, ctx.Err()
}

// ask calls the publisher, and returns a panic as err.
func (r *Relay) ask(ctx context.Context, messages []Message) (errs []error, err error) {
	defer recovered(&err)
	return r.cfg.Publisher.Publish(ctx, messages), nil
}

// recovered turns a panic into an error.
func recovered(err *error) {
	if p := recover(); p != nil {
		*err = &outbox.PanicError{Value: p, Stack: debug.Stack()}
	}
}

// stop ends the job because its context has ended: the outbox closes, or the time of the
// listener is up, which counts no attempt.
func (b *job) stop(ctx context.Context, left []pending) {
	err := ctx.Err()
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = fmt.Errorf("relay: the time of the listener was up: %w", outbox.Defer(firstBackoff))
	}
	for _, p := range left {
		b.errs[p.index] = err
	}
}

// fail stores the error of a message that the broker, or the route, did not take.
func (b *job) fail(p pending, err error) {
	failure := b.describe(p, err)
	if errors.Is(err, ErrRefused) {
		failure = outbox.Dead(failure)
	}
	b.errs[p.index] = failure
}

func (b *job) describe(p pending, err error) error {
	return fmt.Errorf("relay: publishing event %s to %q: %w", b.events[p.index].EventID, p.message.Topic, err)
}
