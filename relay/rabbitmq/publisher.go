package relayrabbitmq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outboxkit/outbox-go/relay"
)

// closeTimeout bounds Close when its context has no end.
const closeTimeout = 5 * time.Second

// Publisher is a [relay.Publisher] for RabbitMQ. A Publisher has a single connection, and a channel
// for each call that runs, and is safe for concurrent use.
type Publisher struct {
	cfg Config

	// turn has room for the single goroutine that may use link and closed.
	turn   chan struct{}
	link   *link // nil: not connected yet
	closed bool
}

var (
	_ relay.Publisher    = (*Publisher)(nil)
	_ relay.TopicChecker = (*Publisher)(nil)
)

// Publish implements [relay.Publisher]. When ctx ends before the broker has confirmed all messages,
// Publish closes the connection: the next call opens another connection.
func (p *Publisher) Publish(ctx context.Context, messages []relay.Message) []error {
	c := &call{p: p, messages: messages, publishings: make([]amqp.Publishing, len(messages)), errs: make([]error, len(messages))}
	var valid []int
	for i, m := range messages {
		if c.publishings[i], c.errs[i] = publishing(m); c.errs[i] == nil {
			valid = append(valid, i)
		}
	}
	for part := range slices.Chunk(valid, window) {
		c.publish(ctx, part)
	}
	if slices.ContainsFunc(c.errs, func(err error) bool { return err != nil }) {
		return c.errs
	}
	return nil
}

// CheckTopic reports the problem with the topic of a route: more than 255 bytes, or no valid UTF-8.
func (p *Publisher) CheckTopic(topic string) error { return checkTopic(topic) }

// Ping implements [relay.Publisher]. Ping connects if necessary, and opens a channel.
func (p *Publisher) Ping(ctx context.Context) error {
	l, err := p.connect(ctx)
	if err != nil {
		return err
	}
	if _, err := l.next(); err != nil {
		return err
	}
	answer := make(chan error, 1)
	go func() { // the goroutine ends with the connection at the latest
		ch, err := l.conn.Channel()
		if err == nil {
			err = ch.Close()
		}
		answer <- err
	}()
	select {
	case err = <-answer:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("%w: %w", relay.ErrUnavailable, err)
	}
	return nil
}

// Close implements [relay.Publisher]. Close waits for a call that connects, and for the broker's
// answer, until ctx ends, or for 5 s.
func (p *Publisher) Close(ctx context.Context) error {
	deadline, has := ctx.Deadline()
	if !has {
		deadline = time.Now().Add(closeTimeout)
	}
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	if err := p.begin(ctx); err != nil {
		return err
	}
	defer p.end()
	p.closed = true
	if p.link == nil {
		return nil
	}
	err := p.link.conn.CloseDeadline(deadline)
	if err != nil && !errors.Is(err, amqp.ErrClosed) {
		return fmt.Errorf("relayrabbitmq: closing the connection: %w", err)
	}
	return nil
}

// begin waits for the turn.
func (p *Publisher) begin(ctx context.Context) error {
	select {
	case p.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: connecting: %w", relay.ErrUnavailable, ctx.Err())
	}
}

func (p *Publisher) end() { <-p.turn }

// connect returns the connection, and opens a connection if necessary.
func (p *Publisher) connect(ctx context.Context) (*link, error) {
	if err := p.begin(ctx); err != nil {
		return nil, err
	}
	defer p.end()
	if p.closed {
		return nil, fmt.Errorf("%w: the publisher is closed", relay.ErrUnavailable)
	}
	if p.link != nil && !p.link.conn.IsClosed() {
		return p.link, nil
	}
	var errs []error
	for _, url := range p.cfg.URLs {
		l, err := dial(ctx, url, p.cfg.AMQP)
		if err == nil {
			p.link = l
			return l, nil
		}
		errs = append(errs, err)
	}
	return nil, fmt.Errorf("%w: connecting: %w", relay.ErrUnavailable, errors.Join(errs...))
}
