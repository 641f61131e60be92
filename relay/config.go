package relay

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// Config configures a [Relay]. Publisher and Routes are required.
type Config struct {
	Publisher Publisher
	Routes    []Route
	// Format says how an event becomes a message. Defaults to [Binary].
	Format Format
	// Source is the attribute source of CloudEvents, a URI reference such as "/orders". Source is
	// part of each message's id, so services that share a broker need different sources. Required
	// unless the format is [Plain].
	Source string
	// Batch tunes the calls. Size defaults to 500 and Concurrency to 4.
	Batch outbox.BatchOptions
	// Timeout is how long a call of the publisher may take. The outbox's ListenerTimeout ends a
	// call too, if that is shorter. Defaults to 30 s.
	Timeout time.Duration
	// MaxBackoff caps the delay of deferred events during an outage. The delay starts at
	// 1 s and doubles. Defaults to 10 s.
	MaxBackoff time.Duration
	// Metrics gets the relay's figures, such as the metrics of adapters/prometheus and
	// adapters/otel. Defaults to [NopMetrics].
	Metrics Metrics
	// Logger defaults to slog.Default().
	Logger *slog.Logger
}

// Defaults of [Config].
const (
	DefaultBatchSize   = 500
	DefaultConcurrency = 4
	DefaultTimeout     = 30 * time.Second
	DefaultMaxBackoff  = 10 * time.Second
)

// withDefaults returns a copy that has the defaults.
func (c Config) withDefaults() Config {
	c.Routes = slices.Clone(c.Routes)
	for i := range c.Routes {
		kinds := slices.Clone(c.Routes[i].Kinds)
		for j := range kinds {
			kinds[j].AggregateType = orGlobal(kinds[j].AggregateType)
		}
		c.Routes[i].Kinds = kinds
	}
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
	if c.Metrics == nil {
		c.Metrics = NopMetrics{}
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

// validate returns the problems of all fields, in the order of the fields.
func (c *Config) validate() (errs []error) {
	bad := func(field, problem string, args ...any) {
		errs = append(errs, &outbox.FieldError{Field: "relay.Config." + field, Problem: fmt.Sprintf(problem, args...)})
	}
	if c.Publisher == nil {
		bad("Publisher", "is nil; it sends messages with the client of your broker")
	}
	c.validateRoutes(bad)
	switch c.Format {
	case Binary, Structured:
		if strings.TrimSpace(c.Source) == "" {
			bad("Source", `is empty; CloudEvents need one, such as "/orders", or take the format relay.Plain`)
		}
	case Plain:
	default:
		bad("Format", "is %q; it must be binary, structured or plain", c.Format)
	}
	if err := c.Batch.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("relay.Config.Batch: %w", err))
	}
	if c.Timeout < 0 {
		bad("Timeout", "is %s; it must not be negative", c.Timeout)
	}
	if c.MaxBackoff < 0 {
		bad("MaxBackoff", "is %s; it must not be negative", c.MaxBackoff)
	}
	return errs
}

func (c *Config) validateRoutes(bad func(field, problem string, args ...any)) {
	if len(c.Routes) == 0 {
		bad("Routes", "is empty; without a route no event is published")
	}
	checker, canCheck := c.Publisher.(TopicChecker)
	seen := map[outbox.EventKind]bool{}
	for i, route := range c.Routes {
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
		for j, kind := range route.Kinds {
			field := fmt.Sprintf("%s.Kinds[%d]", field, j)
			if kind.EventType == "" {
				bad(field+".EventType", "is empty; name the event type")
			}
			if kind.Listener != "" {
				bad(field+".Listener", "is %.100q; leave it empty, and give outbox.Named to Bindings", kind.Listener)
			}
			if seen[kind] {
				bad(field, "is %s, which another route has too; a listener with a name may publish an event a second time", kind)
			}
			seen[kind] = true
		}
	}
}

// kindOf is the kind of events as [outbox.On] and the writer store it.
func kindOf(aggregate outbox.AggregateType, event outbox.EventType) outbox.EventKind {
	return outbox.EventKind{AggregateType: orGlobal(aggregate), EventType: event}
}

func orGlobal(aggregate outbox.AggregateType) outbox.AggregateType {
	return cmp.Or(aggregate, outbox.Global)
}
