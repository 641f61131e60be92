package webhook

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// Kind is the kind of the deliveries: operators pause, bound and find deliveries by it.
var Kind = outbox.EventKind{AggregateType: "Webhook", EventType: "webhook.delivery"}

// Config configures [Hooks]. Endpoints and Write are required.
type Config struct {
	Endpoints Endpoints
	// Write writes deliveries, all or none, in a separate transaction, through the outbox of the events: with
	// RunInTx and WriteAll of an adapter. It returns the error of WriteAll, or an error that wraps it.
	Write func(ctx context.Context, deliveries []outbox.Envelope) error
	// Listener is the name of the listener that makes the deliveries of an event; see [outbox.Named].
	// Required if the kinds have other listeners. Defaults to no name.
	Listener string
	// Body makes the body of the requests from an event, once for all endpoints. An error is an error of
	// the event's delivery. Defaults to [Body].
	Body func(env outbox.Envelope) (outbox.Payload, error)

	// Rules of the deliveries. Fields that are zero have these defaults: a MaxAttempts of 10, a
	// RetryPolicy of [Schedule], which tries for three days, an Expires of seven days, a Concurrency of 256
	// requests in each process, a KeyConcurrency of 4 requests to an endpoint in each process, and a
	// Breaker that pauses an endpoint for 30 s to five minutes after five failures in a row.
	Rules outbox.Rules
	// OrderedByKey leaves out the defaults that [outbox.OrderedByKey] refuses. In this mode an endpoint
	// gets the deliveries one after the other, in the order in which they were made. Defaults to false.
	OrderedByKey bool
	// SlowRequests is how many requests to slow endpoints run at once in each process. An endpoint is slow from
	// the moment when a request has run for a tenth of the Timeout until a request takes less. A request above
	// the bound does not begin, or ends after a tenth of the Timeout, and is repeated after 30 s without an
	// attempt. So the other workers are left for the endpoints that answer. Defaults to half of
	// Rules.Concurrency. With OrderedByKey, SlowRequests defaults to 8, which is half of the default of
	// [outbox.DispatchOptions].Workers: set it to half of your Workers.
	SlowRequests int

	// Timeout is how long a request may take, until the answer is read. Of this time, connecting and the
	// TLS handshake may each take 5 s. At most 5 min. Defaults to 20 s.
	Timeout time.Duration
	// MaxRetryAfter is the longest pause that an endpoint gets by a Retry-After in an answer; at least a
	// second, at most a day. Defaults to an hour.
	MaxRetryAfter time.Duration
	// AllowHTTP allows URLs without TLS. Defaults to false.
	AllowHTTP bool
	// AllowNetworks are networks that are not public, and to which requests may go nevertheless, such as
	// 127.0.0.0/8 in a test. Defaults to no networks.
	AllowNetworks []netip.Prefix
	// DenyNetworks are public networks to which no request may go, such as the IPv6 network of your VPC: its
	// addresses are public. AllowNetworks count first. Defaults to no networks.
	DenyNetworks []netip.Prefix
	// TLS changes the connections, such as by RootCAs. MinVersion is at least TLS 1.2. Defaults to the
	// settings of crypto/tls.
	TLS *tls.Config
	// UserAgent is a header of the requests. Defaults to "outbox-go".
	UserAgent string
	// Logger defaults to slog.Default().
	Logger *slog.Logger
}

// Defaults and bounds.
const (
	DefaultTimeout        = 20 * time.Second
	DefaultMaxRetryAfter  = time.Hour
	defaultConcurrency    = 256
	defaultKeyConcurrency = 4
	defaultSlowOrdered    = 8
	defaultFailures       = 5
	defaultExpires        = 7 * 24 * time.Hour
	maxTimeout            = 5 * time.Minute
	minPause              = time.Second
	maxPause              = 24 * time.Hour
	// spare is the time that a listener has beside the request, to read the endpoint.
	spare = 10 * time.Second
)

// schedule are the waits after failures.
var schedule = []time.Duration{
	5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour, 10 * time.Hour, 14 * time.Hour, 20 * time.Hour, 24 * time.Hour,
}

// Schedule is the default [outbox.RetryPolicy]. It waits as long as Standard Webhooks recommends: 5 s, 5 min,
// 30 min, 2 h, 5 h, 10 h, 14 h, 20 h and 24 h, each up to a tenth longer, by chance.
var Schedule outbox.RetryPolicy = outbox.RetryPolicyFunc(delay)

func (c Config) withDefaults() Config {
	c.Timeout = cmp.Or(c.Timeout, DefaultTimeout)
	c.MaxRetryAfter = cmp.Or(c.MaxRetryAfter, DefaultMaxRetryAfter)
	c.UserAgent = cmp.Or(c.UserAgent, "outbox-go")
	c.Logger = cmp.Or(c.Logger, slog.Default())
	if c.SlowRequests == 0 {
		c.SlowRequests = max(1, cmp.Or(c.Rules.Concurrency, defaultConcurrency)/2)
		if c.OrderedByKey {
			c.SlowRequests = defaultSlowOrdered
		}
	}
	c.AllowNetworks, c.DenyNetworks = slices.Clone(c.AllowNetworks), slices.Clone(c.DenyNetworks)
	if c.Body == nil {
		c.Body = Body
	}
	return c
}

// defaultRules are the rules of the deliveries unless Config.Rules says otherwise.
func (c *Config) defaultRules() outbox.Rules {
	rules := outbox.Rules{
		MaxAttempts: len(schedule) + 1, RetryPolicy: Schedule, Expires: defaultExpires, ListenerTimeout: c.Timeout + spare,
	}
	if !c.OrderedByKey {
		rules.Concurrency, rules.KeyConcurrency = defaultConcurrency, defaultKeyConcurrency
		rules.Breaker = outbox.Breaker{Failures: defaultFailures, PerKey: true}
	}
	return rules
}

func (c *Config) validate() error {
	var errs []error
	bad := func(field, problem string, args ...any) {
		errs = append(errs, &outbox.FieldError{Field: "webhook.Config." + field, Problem: fmt.Sprintf(problem, args...)})
	}
	if c.Endpoints == nil {
		bad("Endpoints", "is nil; set which endpoints get an event, such as webhook.Static")
	}
	if c.Write == nil {
		bad("Write", "is nil; set a function that calls WriteAll of your adapter in a transaction")
	}
	if c.Timeout < 0 || c.Timeout > maxTimeout {
		bad("Timeout", "is %s; it must be positive, at most %s, or zero for %s", c.Timeout, maxTimeout, DefaultTimeout)
	}
	if c.SlowRequests < 0 {
		bad("SlowRequests", "is %d; it must be positive, or zero for half of the workers", c.SlowRequests)
	}
	if c.MaxRetryAfter < minPause || c.MaxRetryAfter > maxPause {
		bad("MaxRetryAfter", "is %s; it must be from %s to %s, or zero for %s", c.MaxRetryAfter, minPause, maxPause, DefaultMaxRetryAfter)
	}
	for field, networks := range map[string][]netip.Prefix{"AllowNetworks": c.AllowNetworks, "DenyNetworks": c.DenyNetworks} {
		for _, p := range networks {
			if !p.IsValid() || p.Addr().Is4In6() {
				bad(field, "has a network that is not valid, or is IPv4 as IPv6; make it with netip.MustParsePrefix")
			}
		}
	}
	return errors.Join(errs...)
}
