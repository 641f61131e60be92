package logread

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// Publisher publishes the events of a log. The fields are those of the readers' configs.
type Publisher struct {
	Publish     func(ctx context.Context, batch []outbox.Envelope) []error
	Dead        func(ctx context.Context, env outbox.Envelope, err error) error
	MaxAttempts int
	BatchSize   int
	BatchBytes  int
	MaxBackoff  time.Duration
	Logger      *slog.Logger

	started time.Time
	counts  *counts
}

// Defaults of [Publisher].
const (
	DefaultMaxAttempts = 10
	DefaultBatchSize   = 500
	DefaultBatchBytes  = 8 << 20
	DefaultMaxBackoff  = 30 * time.Second
)

const (
	firstBackoff = time.Second
	maxBatchSize = 100_000
)

// WithDefaults sets the fields that are zero.
func (p Publisher) WithDefaults() Publisher {
	p.MaxAttempts = cmp.Or(p.MaxAttempts, DefaultMaxAttempts)
	p.BatchSize = cmp.Or(p.BatchSize, DefaultBatchSize)
	p.BatchBytes = cmp.Or(p.BatchBytes, DefaultBatchBytes)
	p.MaxBackoff = cmp.Or(p.MaxBackoff, DefaultMaxBackoff)
	p.Logger = cmp.Or(p.Logger, slog.Default())
	p.started, p.counts = time.Now().UTC(), &counts{}
	return p
}

// Validate gives each field that is not valid to bad. toListener names the function of the reader's package.
func (p Publisher) Validate(toListener string, bad func(field, problem string, args ...any)) {
	if p.Publish == nil {
		bad("Config.Publish", "is nil; set Publish of a relay, or %s", toListener)
	}
	if p.MaxAttempts < 1 {
		bad("Config.MaxAttempts", "is %d; it must be positive, or zero for %d", p.MaxAttempts, DefaultMaxAttempts)
	}
	if p.BatchSize < 1 || p.BatchSize > maxBatchSize {
		bad("Config.BatchSize", "is %d; it must be from 1 to %d, or zero for %d", p.BatchSize, maxBatchSize, DefaultBatchSize)
	}
	if p.BatchBytes < 1 {
		bad("Config.BatchBytes", "is %d; it must be positive, or zero for %d", p.BatchBytes, DefaultBatchBytes)
	}
	if p.MaxBackoff < firstBackoff {
		bad("Config.MaxBackoff", "is %s; it must be at least %s, or zero for %s", p.MaxBackoff, firstBackoff, DefaultMaxBackoff)
	}
}

// ToListener is a Publish for [Publisher] that calls a listener for one event after the other. When the
// listener fails for an event, the later events of its aggregate in the batch wait. An error counts as a
// failure; [outbox.Defer], [outbox.RetryIn] and [outbox.Dead] count as they say.
func ToListener(listener outbox.Listener) func(ctx context.Context, batch []outbox.Envelope) []error {
	type key struct {
		kind outbox.AggregateType
		id   string
	}
	return func(ctx context.Context, batch []outbox.Envelope) []error {
		errs := make([]error, len(batch))
		waits := map[key]bool{}
		for i, env := range batch {
			k := key{env.AggregateType, env.AggregateID}
			switch {
			case ctx.Err() != nil:
				errs[i] = ctx.Err()
			case k.id != "" && waits[k]:
				errs[i] = outbox.Defer(firstBackoff)
			default:
				errs[i] = listen(ctx, listener, env)
				waits[k] = waits[k] || errs[i] != nil
			}
		}
		return errs
	}
}

// listen calls a listener. A panic is a failure of this event alone.
func listen(ctx context.Context, listener outbox.Listener, env outbox.Envelope) (err error) {
	defer recovered(&err)
	return listener.OnEvent(ctx, env)
}

// recovered turns a panic into an error.
func recovered(err *error) {
	if p := recover(); p != nil {
		*err = &outbox.PanicError{Value: p, Stack: debug.Stack()}
	}
}

// All publishes events, again and again until all are published or given to Dead. An event that is
// neither holds up the later events: they must not overtake it. All returns the error of ctx.
func (p *Publisher) All(ctx context.Context, left []Event) error {
	for retry := firstBackoff; ; retry = min(2*retry, p.MaxBackoff) {
		var wait time.Duration
		before := len(left)
		left, wait = p.attempt(ctx, left, retry)
		switch {
		case ctx.Err() != nil && len(left) > 0:
			return ctx.Err()
		case len(left) == 0:
			return nil
		case len(left) < before && wait == 0:
			retry = firstBackoff // the events behind a dead event
			continue
		}
		if err := Sleep(ctx, wait); err != nil {
			return err
		}
	}
}

// attempt publishes the events once, and returns the events that are left and how long to wait before the
// next attempt: the longest time that a deferred event asks for, and at least retry if an event
// failed.
func (p *Publisher) attempt(ctx context.Context, items []Event, retry time.Duration) (left []Event, wait time.Duration) {
	// The events behind a row that cannot be read wait: they may be of the same key.
	ready := items
	if bad := slices.IndexFunc(items, func(e Event) bool { return e.Err != nil }); bad >= 0 {
		ready = items[:max(bad, 1)]
	}
	errs := p.call(ctx, ready)
	failed, refused := 0, error(nil)
	for i := range items {
		if i >= len(ready) {
			left = append(left, items[i])
			continue
		}
		err, next := errs[i], items[i]
		if err == nil {
			p.counts.delivered.Add(1)
			continue
		}
		var decided *outbox.OutcomeError
		decides := errors.As(err, &decided)
		switch {
		case ctx.Err() != nil:
		case decides && decided.Outcome == outbox.OutcomeDeferred:
			wait = max(wait, decided.Delay, time.Millisecond)
		default:
			next.attempts++
			p.counts.failed.Add(1)
			final := decides && decided.Outcome == outbox.OutcomeDead || next.Err != nil || next.attempts >= p.MaxAttempts
			if final && p.Dead != nil {
				if err = p.bury(ctx, next.Env, err); err == nil {
					continue
				}
			}
			if failed++; failed == 1 {
				refused = fmt.Errorf("event %s: %w", next.Env.EventID, err)
			}
			wait = max(wait, retry)
			if decides && decided.Outcome == outbox.OutcomeRetry {
				wait = max(wait, decided.Delay)
			}
		}
		left = append(left, next)
	}
	if failed > 0 {
		p.Logger.ErrorContext(ctx, "cdc: events cannot be published, and hold up the reader", "events", failed, "first", refused, "again_in", wait.String())
	}
	return left, wait
}

// call calls Publish. A panic and a wrong number of errors fail the batch. A row that cannot be read is
// alone, and is not published.
func (p *Publisher) call(ctx context.Context, items []Event) []error {
	if len(items) == 1 && items[0].Err != nil {
		return []error{fmt.Errorf("the row cannot be read: %w", items[0].Err)}
	}
	batch := make([]outbox.Envelope, len(items))
	for i := range items {
		batch[i] = items[i].Env
	}
	errs, err := p.ask(ctx, batch)
	if err == nil && errs == nil {
		return make([]error, len(items))
	}
	if err == nil && len(errs) != len(items) {
		err = fmt.Errorf("Publish returned %d errors for %d events", len(errs), len(items)) //nolint:staticcheck // the name of the function
	}
	if err != nil {
		return slices.Repeat([]error{err}, len(items))
	}
	return errs
}

func (p *Publisher) ask(ctx context.Context, batch []outbox.Envelope) (errs []error, err error) {
	defer recovered(&err)
	return p.Publish(ctx, batch), nil
}

// bury gives an event to Dead, and returns an error if Dead did not keep it.
func (p *Publisher) bury(ctx context.Context, env outbox.Envelope, cause error) error {
	err := func() (err error) {
		defer recovered(&err)
		return p.Dead(ctx, env, cause)
	}()
	if err != nil {
		return fmt.Errorf("%w; Dead did not take it: %w", cause, err)
	}
	p.Logger.WarnContext(ctx, "cdc: event is dead", "event_id", env.EventID, "error", cause)
	return nil
}

// Sleep waits, and returns the error of ctx.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
