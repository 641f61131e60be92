package relay

import (
	"context"
	"errors"
	"io"

	"github.com/outboxkit/outbox-go/outbox"
)

// Publisher sends messages to a broker, and is safe for concurrent use.
type Publisher interface {
	// Publish sends messages and waits until the broker has acknowledged or refused each message.
	// Publish returns nil when all messages are acknowledged, else an error for each message, in
	// order, nil for acknowledged messages. Two messages of a call never have the same key. See
	// [ErrUnavailable] for the errors, which never quote a payload.
	Publish(ctx context.Context, messages []Message) []error
	// Ping reports whether the broker answers.
	Ping(ctx context.Context) error
	// Close ends the connection. Close the outbox first: it publishes the events that it has in
	// hand.
	Close(ctx context.Context) error
}

// TopicChecker is a [Publisher] that knows which topics its broker cannot have. [New] has it check
// the topics of the routes.
type TopicChecker interface {
	// CheckTopic returns nil, or an error with the problem of the topic.
	CheckTopic(topic string) error
}

// Route sends events of some kinds to a topic. Several goroutines may call the functions of a route
// at once. The functions must not change the event. A panic of a function is an error of the
// event's delivery.
type Route struct {
	// Kinds are the events. An empty AggregateType means [outbox.Global]. Leave Listener empty:
	// [Relay.Bindings] gives the relay its name.
	Kinds []outbox.EventKind
	// Topic is the topic, subject or routing key. Excludes TopicOf.
	Topic string
	// TopicOf gives the topic of an event. An error is an error of the event's delivery.
	TopicOf func(env outbox.Envelope) (string, error)
	// KeyOf gives the key of an event. Defaults to the aggregate id.
	KeyOf func(env outbox.Envelope) string
	// HeadersOf gives the headers of the message, in place of the event's own headers. To add a
	// header, copy env.Headers, which may be nil, into a new map. Defaults to env.Headers, which
	// have the trace context.
	HeadersOf func(env outbox.Envelope) map[string]string
}

// To is the route of some kinds of events to a topic.
func To(topic string, kinds ...outbox.EventKind) Route { return Route{Topic: topic, Kinds: kinds} }

// Relay publishes events, and is safe for concurrent use.
type Relay struct {
	cfg    Config
	routes map[outbox.EventKind]*Route
	outage outage
}

// New makes a relay. If fields are invalid, New returns no relay and reports all invalid fields
// together, each as an [outbox.FieldError].
func New(cfg Config) (*Relay, error) {
	cfg = cfg.withDefaults()
	if err := errors.Join(cfg.validate()...); err != nil {
		return nil, err
	}
	r := &Relay{cfg: cfg, routes: map[outbox.EventKind]*Route{}}
	r.outage = outage{longest: cfg.MaxBackoff, log: cfg.Logger, changed: r.outageChanged, topics: map[string]*absence{}}
	for i := range cfg.Routes {
		for _, kind := range cfg.Routes[i].Kinds {
			r.routes[kind] = &r.cfg.Routes[i]
		}
	}
	return r, nil
}

// Bindings are the relay's listeners, for [outbox.Outbox.Register]. Give the relay a name when the
// relay's events have other listeners too: [outbox.Named]. The relay then gets batches of one
// event.
func (r *Relay) Bindings(opts ...outbox.BindingOption) []outbox.Binding {
	listener := outbox.BatchListener(r.cfg.Batch, r.listen)
	var bindings []outbox.Binding
	for i := range r.cfg.Routes {
		for _, kind := range r.cfg.Routes[i].Kinds {
			bindings = append(bindings, outbox.On(kind.AggregateType, kind.EventType, listener, opts...))
		}
	}
	return bindings
}

// Ping reports whether the broker answers, for a health check.
func (r *Relay) Ping(ctx context.Context) error { return r.cfg.Publisher.Ping(ctx) }

// Close closes the publisher, and then the metrics if they are an [io.Closer]. Close the
// outbox first.
func (r *Relay) Close(ctx context.Context) error {
	err := r.cfg.Publisher.Close(ctx)
	if m, ok := r.cfg.Metrics.(io.Closer); ok {
		err = errors.Join(err, m.Close())
	}
	return err
}
