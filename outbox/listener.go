package outbox

import (
	"context"
	"fmt"

	"github.com/outboxkit/outbox-go/internal/nilness"
)

// Listener gets the events of one pair of aggregate type and event type. Several
// workers call it at once, at least once for each event: make it idempotent by the
// envelope's EventID. The context ends after the ListenerTimeout, or when the outbox
// shuts down. An error or a panic is a failed delivery, which is retried; see
// [RetryAfterError] and [Unrecoverable]. If OnEvent returns a result and an error,
// the error counts.
type Listener interface {
	OnEvent(ctx context.Context, env Envelope) (Result, error)
}

// ListenerFunc makes a function a [Listener].
type ListenerFunc func(ctx context.Context, env Envelope) (Result, error)

// OnEvent calls f.
func (f ListenerFunc) OnEvent(ctx context.Context, env Envelope) (Result, error) { return f(ctx, env) }

// Handle makes a function that returns only an error a [Listener]. A nil error is
// [Done].
func Handle(fn func(ctx context.Context, env Envelope) error) Listener {
	if fn == nil {
		return nil
	}
	return ListenerFunc(func(ctx context.Context, env Envelope) (Result, error) { return Done(), fn(ctx, env) })
}

// Binding binds a listener to the events that it gets.
type Binding struct {
	AggregateType AggregateType
	EventType     EventType
	Listener      Listener
}

// On binds a listener to an exact pair of types; there is no wildcard. An empty
// aggregate is [Global].
func On(aggregate AggregateType, event EventType, listener Listener) Binding {
	return Binding{AggregateType: orGlobal(aggregate), EventType: event, Listener: listener}
}

// Validate reports all invalid fields together, each as a [FieldError].
func (b Binding) Validate() error {
	v := validator{what: "binding"}
	v.text("AggregateType", string(b.AggregateType), MaxAggregateTypeLength)
	v.text("EventType", string(b.EventType), MaxEventTypeLength)
	if b.EventType == "" {
		v.add("EventType", "is required")
	}
	if nilness.IsNil(b.Listener) {
		v.add("Listener", fmt.Sprintf("is nil (for %s/%s)", b.AggregateType, b.EventType))
	}
	if l, ok := b.Listener.(*batchListener); ok && l.problem != nil {
		v.errs = append(v.errs, fmt.Errorf("outbox: the batch listener of %s/%s: %w", b.AggregateType, b.EventType, l.problem))
	}
	return v.err()
}

func orGlobal(a AggregateType) AggregateType {
	if a == "" {
		return Global
	}
	return a
}
