package outbox

import (
	"context"
	"fmt"
	"strings"
	"unicode"

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
	// Name tells the listeners of one pair apart; see [Named]. Empty: the pair has no
	// other listener.
	Name string
}

// BindingOption changes a [Binding].
type BindingOption func(*Binding)

// MaxListenerNameLength is how many characters the name of a listener may have.
const MaxListenerNameLength = 64

// Named names a listener, so that its pair of types can have others, each with its own
// name and its own retries. Rows in the table contain the name, so keep it: events that
// wait for a listener whose name is gone are unroutable. A name has at most 64
// characters and no control characters. The empty name is none.
func Named(name string) BindingOption { return func(b *Binding) { b.Name = name } }

// On binds a listener to an exact pair of types; there is no wildcard. An empty
// aggregate is [Global].
func On(aggregate AggregateType, event EventType, listener Listener, opts ...BindingOption) Binding {
	b := Binding{AggregateType: orGlobal(aggregate), EventType: event, Listener: listener}
	for _, opt := range opts {
		opt(&b)
	}
	return b
}

// Validate reports all invalid fields together, each as a [FieldError].
func (b Binding) Validate() error {
	v := validator{what: "binding"}
	v.text("AggregateType", string(b.AggregateType), MaxAggregateTypeLength)
	v.text("EventType", string(b.EventType), MaxEventTypeLength)
	if b.EventType == "" {
		v.add("EventType", "is required")
	}
	if i := strings.IndexFunc(b.Name, unicode.IsControl); i >= 0 {
		v.add("Name", fmt.Sprintf("has a control character at offset %d; use printable characters", i))
	} else {
		v.text("Name", b.Name, MaxListenerNameLength)
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
