package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// Publisher sends messages to a broker. It is safe for concurrent use.
type Publisher interface {
	// Publish sends messages and waits until the broker has acknowledged or refused each
	// of them. It returns nil when all are acknowledged, else one error for each message,
	// in order, nil for those that are. Two messages of one call never have the same
	// topic and key. See [ErrUnavailable] for the errors, which never quote a payload.
	Publish(ctx context.Context, messages []Message) []error
	// Ping reports whether the broker answers.
	Ping(ctx context.Context) error
	// Close ends the connection. Close the outbox first: it publishes what it has in
	// hand.
	Close(ctx context.Context) error
}

// TopicChecker is a [Publisher] that knows which topics its broker cannot have. [New] asks
// it about the topics of the routes.
type TopicChecker interface {
	// CheckTopic returns nil, or an error that says what is wrong with the topic.
	CheckTopic(topic string) error
}

// Route says to where the events of some kinds go.
type Route struct {
	Kinds []outbox.EventKind
	// Topic is the topic, subject or routing key. Excludes TopicOf.
	Topic string
	// TopicOf gives the topic of an event. An error is one of the event's delivery.
	TopicOf func(env outbox.Envelope) (string, error)
	// KeyOf gives the key of an event. Defaults to the aggregate id.
	KeyOf func(env outbox.Envelope) string
}

// To is the route of some kinds of events to a topic.
func To(topic string, kinds ...outbox.EventKind) Route { return Route{Topic: topic, Kinds: kinds} }

// Config configures a [Relay]. Publisher and Routes are required.
type Config struct {
	Publisher Publisher
	Routes    []Route
	// Format says how an event becomes a message. Defaults to [Binary].
	Format Format
	// Source is the attribute source of CloudEvents, a URI reference such as "/orders".
	// Required unless the format is [Plain].
	Source string
	// Batch tunes the calls. Size defaults to 500 and Concurrency to 4.
	Batch outbox.BatchOptions
	// Timeout is how long one call of the publisher may take. Defaults to 30 s.
	Timeout time.Duration
	// MaxBackoff is the longest time for which events are deferred while the broker is
	// not available. The first one is a second, and each further one twice the last.
	// Defaults to 10 s.
	MaxBackoff time.Duration
	// OnPublished is called after each call of the publisher, for metrics, once for each
	// topic. It may be called by several goroutines at once. Defaults to nothing.
	OnPublished func(p Published)
	// Logger defaults to slog.Default().
	Logger *slog.Logger
}

// Published is what one call of the publisher came to for one topic.
type Published struct {
	Topic                string
	Acknowledged, Failed int
	// Duration is that of the whole call.
	Duration time.Duration
}

// Defaults of [Config].
const (
	DefaultBatchSize   = 500
	DefaultConcurrency = 4
	DefaultTimeout     = 30 * time.Second
	DefaultMaxBackoff  = 10 * time.Second
)

// Relay publishes events. It is safe for concurrent use.
type Relay struct {
	cfg    Config
	routes map[outbox.EventKind]*Route
	outage outage
}

// New makes a relay. It reports all invalid fields together, each as an
// [outbox.FieldError].
func New(cfg Config) (*Relay, error) {
	r := &Relay{cfg: cfg.withDefaults(), routes: map[outbox.EventKind]*Route{}}
	r.outage = outage{longest: r.cfg.MaxBackoff, log: r.cfg.Logger}
	return r, errors.Join(r.validate()...)
}

func (c Config) withDefaults() Config {
	if c.Format == "" {
		c.Format = Binary
	}
	if c.Batch.Size == 0 {
		c.Batch.Size = DefaultBatchSize
	}
	if c.Batch.Concurrency == 0 {
		c.Batch.Concurrency = DefaultConcurrency
	}
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	if c.MaxBackoff == 0 {
		c.MaxBackoff = DefaultMaxBackoff
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

func (r *Relay) validate() (errs []error) {
	bad := func(field, problem string, args ...any) {
		errs = append(errs, &outbox.FieldError{Field: "relay.Config." + field, Problem: fmt.Sprintf(problem, args...)})
	}
	if r.cfg.Publisher == nil {
		bad("Publisher", "is nil; it sends messages with the client of your broker")
	}
	switch r.cfg.Format {
	case Binary, Structured:
		if strings.TrimSpace(r.cfg.Source) == "" {
			bad("Source", `is empty; CloudEvents need one, such as "/orders", or take the format relay.Plain`)
		}
	case Plain:
	default:
		bad("Format", "is %q; it must be binary, structured or plain", r.cfg.Format)
	}
	for field, d := range map[string]time.Duration{"Timeout": r.cfg.Timeout, "MaxBackoff": r.cfg.MaxBackoff} {
		if d < 0 {
			bad(field, "is %s; it must not be negative", d)
		}
	}
	if len(r.cfg.Routes) == 0 {
		bad("Routes", "is empty; without a route no event is published")
	}
	checker, canCheck := r.cfg.Publisher.(TopicChecker)
	for i := range r.cfg.Routes {
		route := &r.cfg.Routes[i]
		field := fmt.Sprintf("Routes[%d]", i)
		switch {
		case route.Topic == "" && route.TopicOf == nil:
			bad(field+".Topic", "is empty; name the topic, or set TopicOf")
		case route.Topic != "" && route.TopicOf != nil:
			bad(field+".Topic", "is set, and TopicOf too; leave one out")
		case route.Topic != "" && canCheck:
			if err := checker.CheckTopic(route.Topic); err != nil {
				bad(field+".Topic", "is %.100q: %v", route.Topic, err)
			}
		}
		if len(route.Kinds) == 0 {
			bad(field+".Kinds", "is empty; name the events that go to %q", route.Topic)
		}
		for _, kind := range route.Kinds {
			if r.routes[kind] != nil {
				bad(field+".Kinds", "has %s, which another route has too; a listener with a name may publish an event a second time", kind)
			}
			r.routes[kind] = route
		}
	}
	return errs
}

// Bindings are the relay's listeners, for [outbox.Outbox.Register]. Give the relay a
// name when its events have other listeners too: [outbox.Named]. It then gets batches
// of one.
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

// Close closes the publisher. Close the outbox first.
func (r *Relay) Close(ctx context.Context) error { return r.cfg.Publisher.Close(ctx) }
