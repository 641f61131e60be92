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
// as change data capture. The events of one key are published in the order of the batch.
// It returns one result for each event: [outbox.Done] when the broker has acknowledged it,
// [outbox.RetryAfter] when it was not published because the broker is away or an earlier
// event of its key failed, else an error. It is safe for concurrent use.
func (r *Relay) Publish(ctx context.Context, batch []outbox.Envelope) []outbox.Result {
	return r.publish(ctx, batch, func(outbox.Envelope, outbox.Envelope) int { return 0 })
}

// listen is the batch listener. Events of a batch have no order, so it is that in which
// they happened.
func (r *Relay) listen(ctx context.Context, batch []outbox.Envelope) ([]outbox.Result, error) {
	return r.publish(ctx, batch, func(x, y outbox.Envelope) int {
		return cmp.Or(x.OccurredAt.Compare(y.OccurredAt), strings.Compare(x.EventID, y.EventID))
	}), nil
}

// publish publishes a batch. The messages of one key go out in rounds, one of each key in
// a round, so that no broker can deliver a later one before one that failed.
func (r *Relay) publish(ctx context.Context, batch []outbox.Envelope, order func(x, y outbox.Envelope) int) []outbox.Result {
	turn, wait := r.outage.try()
	if wait > 0 {
		return slices.Repeat([]outbox.Result{outbox.RetryAfter(wait)}, len(batch))
	}
	b := &job{r: r, turn: turn, events: batch, results: make([]outbox.Result, len(batch))}
	left := b.messages()
	slices.SortStableFunc(left, func(x, y pending) int { return order(batch[x.index], batch[y.index]) })
	for len(left) > 0 {
		if ctx.Err() != nil {
			b.stop(ctx, left)
			break
		}
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

// pending is a message that is to be published, or the failure of its route.
type pending struct {
	index   int // in the batch
	message Message
	err     error
}

// messages are those of the batch. Only Publish can get an event without a route.
func (b *job) messages() []pending {
	list := make([]pending, len(b.events))
	for i, env := range b.events {
		list[i].index = i
		kind := outbox.EventKind{AggregateType: env.AggregateType, EventType: env.EventType}
		if to := b.r.routes[kind]; to != nil {
			list[i].message, list[i].err = b.r.message(env, to)
			continue
		}
		list[i].message.Key = env.AggregateID
		list[i].err = fmt.Errorf("%w: no route has %s", ErrUnroutable, kind)
	}
	return list
}

// round publishes the first message of each key, and those without one. It returns those
// that the next round is for.
func (b *job) round(ctx context.Context, list []pending) (left []pending) {
	var now []pending
	taken, failed := map[string]bool{}, map[string]bool{}
	for _, p := range list {
		switch key := p.message.Key; {
		case key != "" && taken[key]:
			left = append(left, p)
			continue
		case p.err != nil:
			b.fail(p, p.err)
			failed[key] = true
		default:
			now = append(now, p)
		}
		taken[p.message.Key] = true
	}
	if away := b.call(ctx, now, failed); away > 0 {
		b.deferAll(left, away)
		return nil
	}
	return slices.DeleteFunc(left, func(p pending) bool {
		behind := failed[p.message.Key]
		if behind {
			b.results[p.index] = outbox.RetryAfter(firstBackoff)
		}
		return behind
	})
}

// call publishes messages, stores their results and adds the keys that have a failure. It
// returns for how long events are deferred when the broker is away.
func (b *job) call(ctx context.Context, list []pending, failed map[string]bool) (away time.Duration) {
	if len(list) == 0 {
		return 0
	}
	errs, end := b.send(ctx, list)
	acknowledged := len(list)
	for i, err := range errs {
		if err == nil {
			continue
		}
		p := list[i]
		acknowledged--
		failed[p.message.Key] = true
		switch {
		case errors.Is(err, ErrRefused), errors.Is(err, ErrUnroutable):
			b.fail(p, err)
		case errors.Is(ctx.Err(), context.Canceled): // the outbox closes
			b.results[p.index] = outbox.ResultOf(ctx.Err())
		case errors.Is(err, ErrUnavailable), errors.Is(err, context.DeadlineExceeded), end != nil:
			away = b.r.outage.failed(b.turn, b.describe(p, err))
			b.results[p.index] = outbox.RetryAfter(away)
		default:
			b.fail(p, err)
		}
	}
	if away == 0 && acknowledged > 0 {
		b.r.outage.ended()
	}
	return away
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
	c := b.r.began(messages)
	errs = b.r.cfg.Publisher.Publish(ctx, messages)
	if errs != nil && len(errs) != len(list) {
		err := fmt.Errorf("the publisher returned %d errors for %d messages", len(errs), len(list))
		errs = slices.Repeat([]error{err}, len(list))
	}
	c.ended(errs)
	return errs, ctx.Err()
}

// stop ends the job because its context has ended: the outbox closes, or the time of the
// listener is up, which counts no attempt.
func (b *job) stop(ctx context.Context, left []pending) {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		b.deferAll(left, firstBackoff)
		return
	}
	for _, p := range left {
		b.results[p.index] = outbox.ResultOf(ctx.Err())
	}
}

func (b *job) deferAll(list []pending, d time.Duration) {
	for _, p := range list {
		b.results[p.index] = outbox.RetryAfter(d)
	}
}

// fail stores the result of a message that the broker, or its route, did not take.
func (b *job) fail(p pending, err error) {
	result := b.describe(p, err)
	if errors.Is(err, ErrRefused) {
		result = outbox.Unrecoverable(result)
	}
	b.results[p.index] = outbox.ResultOf(result)
}

func (b *job) describe(p pending, err error) error {
	return fmt.Errorf("relay: publishing event %s to %q: %w", b.events[p.index].EventID, p.message.Topic, err)
}
