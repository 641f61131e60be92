package relaykafka

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outboxkit/outbox-go/relay"
)

// Publisher is a [relay.Publisher] for Kafka. All calls share a client. A Publisher is safe for
// concurrent use.
type Publisher struct {
	cfg           Config
	transactional bool
	turn          chan struct{} // has room for the single transaction that runs

	mu     sync.Mutex
	client *kgo.Client // nil: the next call opens a client
	closed bool
}

var (
	_ relay.Publisher    = (*Publisher)(nil)
	_ relay.TopicChecker = (*Publisher)(nil)
)

// Publish implements [relay.Publisher]. When a broker was not available, or ctx ended before all
// messages were acknowledged, Publish closes the client, which would otherwise send the messages
// later: the outbox publishes them again. The next call opens another client.
func (p *Publisher) Publish(ctx context.Context, messages []relay.Message) []error {
	if p.transactional {
		select {
		case p.turn <- struct{}{}:
			defer func() { <-p.turn }()
		case <-ctx.Done():
			return slices.Repeat([]error{classify(ctx.Err())}, len(messages))
		}
	}
	c := &call{p: p, messages: messages, errs: make([]error, len(messages))}
	var valid []int
	for i, m := range messages {
		if err := checkTopic(m.Topic); err != nil {
			c.errs[i] = fmt.Errorf("%w: the topic %w", relay.ErrRefused, err)
			continue
		}
		valid = append(valid, i)
	}
	c.publish(ctx, valid)
	if slices.ContainsFunc(c.errs, func(err error) bool { return err != nil }) {
		return c.errs
	}
	return nil
}

// CheckTopic reports the problem with the topic of a route: Kafka allows 249 letters and digits of
// ASCII, dots, underscores and hyphens.
func (p *Publisher) CheckTopic(topic string) error { return checkTopic(topic) }

// Ping implements [relay.Publisher]. Ping asks a broker for metadata.
func (p *Publisher) Ping(ctx context.Context) error {
	client, err := p.get()
	if err != nil {
		return err
	}
	if err := client.Ping(ctx); err != nil {
		return classify(err)
	}
	return nil
}

// Close implements [relay.Publisher]. Close does not wait for calls that run: their messages fail.
func (p *Publisher) Close(ctx context.Context) error {
	p.mu.Lock()
	client := p.client
	p.closed, p.client = true, nil
	p.mu.Unlock()
	if client == nil {
		return nil
	}
	done := make(chan struct{})
	go func() {
		client.Close()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("relaykafka: closing the client: %w", ctx.Err())
	}
}

// get returns the client, and opens a client if necessary.
func (p *Publisher) get() (*kgo.Client, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, fmt.Errorf("%w: the publisher is closed", relay.ErrUnavailable)
	}
	if p.client == nil {
		client, err := p.open()
		if err != nil {
			return nil, classify(err)
		}
		p.client = client
	}
	return p.client, nil
}

// drop closes a client, so that messages that wait in the client are no longer sent.
func (p *Publisher) drop(client *kgo.Client) {
	p.mu.Lock()
	if p.client == client {
		p.client = nil
	}
	p.mu.Unlock()
	client.Close()
}
