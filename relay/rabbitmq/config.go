package relayrabbitmq

import (
	"errors"
	"fmt"
	"slices"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outboxkit/outbox-go/outbox"
)

// Config configures a [Publisher]. URLs is required.
type Config struct {
	// URLs are the addresses of the broker's nodes, such as "amqp://user:password@host:5672/vhost".
	// The publisher connects to the first node that answers. Required.
	URLs []string
	// Exchange gets the messages; the topic of a route is the routing key. Defaults to the
	// default exchange, for which the topic is the name of a queue.
	Exchange string
	// AMQP are the client's own options, such as TLS, SASL, Heartbeat and Properties. These options
	// take precedence over the URLs. Recovery must be nil: the publisher connects again itself,
	// because it has to know which messages the broker confirmed.
	AMQP amqp.Config
}

// New makes a publisher and does not connect: an application starts while the broker is away, and
// the events wait in the outbox. New reports all invalid fields together, each as an
// [outbox.FieldError].
func New(cfg Config) (*Publisher, error) {
	cfg.URLs = slices.Clone(cfg.URLs)
	var errs []error
	bad := func(field, problem string, args ...any) {
		errs = append(errs, &outbox.FieldError{Field: "relayrabbitmq.Config." + field, Problem: fmt.Sprintf(problem, args...)})
	}
	if len(cfg.URLs) == 0 {
		bad("URLs", `is empty; name the broker's nodes, such as "amqp://user:password@host:5672/"`)
	}
	for i, url := range cfg.URLs {
		// The parser's error would quote the password.
		if _, err := amqp.ParseURI(url); err != nil {
			bad(fmt.Sprintf("URLs[%d]", i), "(%d bytes) is not a URL of AMQP, such as amqp://user:password@host:5672/vhost; escape reserved characters of the password with url.UserPassword", len(url))
		}
	}
	if len(cfg.Exchange) > maxName {
		bad("Exchange", "has %d bytes; AMQP allows %d", len(cfg.Exchange), maxName)
	}
	if cfg.AMQP.Recovery != nil {
		bad("AMQP.Recovery", "is set; leave it out, the publisher connects again itself")
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return &Publisher{cfg: cfg, turn: make(chan struct{}, 1)}, nil
}
