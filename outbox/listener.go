package outbox

import (
	"context"
	"fmt"

	"github.com/outboxkit/outbox-go/internal/nilness"
)

// Listener gets the events of one (aggregate type, event type). It is called
// from several workers at once, at least once for each event: make what it does
// idempotent by the envelope's EventID. The context ends when the listener's
// time is over or the outbox shuts down. An error or a panic is a failed
// delivery that is tried again; see [RetryAfterError] and [Unrecoverable]. When
// it returns both a result and an error, the error counts.
type Listener interface {
	OnEvent(ctx context.Context, env Envelope) (Result, error)
}

// ListenerFunc makes a function a [Listener].
type ListenerFunc func(ctx context.Context, env Envelope) (Result, error)

// OnEvent calls f.
func (f ListenerFunc) OnEvent(ctx context.Context, env Envelope) (Result, error) { return f(ctx, env) }

// Handle makes a listener of a function that only succeeds or fails: a nil
// error is [Done].
func Handle(fn func(ctx context.Context, env Envelope) error) Listener {
	if fn == nil {
		return nil
	}
	return ListenerFunc(func(ctx context.Context, env Envelope) (Result, error) { return Done(), fn(ctx, env) })
}

// Binding says which listener gets which events.
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

// Validate reports what is wrong with the binding: every field at once.
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
	return v.err()
}

func orGlobal(a AggregateType) AggregateType {
	if a == "" {
		return Global
	}
	return a
}
