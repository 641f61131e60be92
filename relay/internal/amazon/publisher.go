// Package amazon has what the publishers for Amazon SQS and Amazon SNS share: messages within the limits,
// requests of up to ten messages, and the classes of errors. The package does not import the SDK.
package amazon

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/outboxkit/outbox-go/relay"
)

// Service is what differs between SQS and SNS.
type Service struct {
	Name string // in errors
	// MaxBytes is the most bytes of a message, and RequestBytes of a request with several messages. A
	// larger message has a request without other messages.
	MaxBytes, RequestBytes int
}

// Client sends requests to a service. Errors are the SDK's.
type Client interface {
	// CheckTopic reports the problem with the topic of a route.
	CheckTopic(topic string) error
	// Target is what requests name for a topic, such as the URL of a queue.
	Target(ctx context.Context, topic string) (string, error)
	// Send sends a request with messages, and returns the answers.
	Send(ctx context.Context, target string, entries []Entry) ([]Answer, error)
}

// Entry is a message of a request. The ID is unique in the request.
type Entry struct {
	ID string
	*Message
}

// Answer is the answer for a message of a request.
type Answer struct {
	ID     string
	Failed bool
	// Code and Message say why the message failed. SenderFault: the service is not at fault.
	Code, Message string
	SenderFault   bool
}

// Publisher publishes messages, and is safe for concurrent use.
type Publisher struct {
	service Service
	client  Client

	mu     sync.Mutex
	closed bool
}

// NewPublisher makes a publisher, and does not connect.
func NewPublisher(service Service, client Client) *Publisher {
	return &Publisher{service: service, client: client}
}

// Publish is as in [relay.Publisher]. A request has up to ten messages of a topic, and several
// requests run at a time. Each message has an error of its own.
func (p *Publisher) Publish(ctx context.Context, messages []relay.Message) []error {
	c := &call{
		client: p.client, made: make([]Message, len(messages)), errs: make([]error, len(messages)), away: map[string]error{},
	}
	topics, valid := []string{}, map[string][]int{}
	for i := range messages {
		topic := messages[i].Topic
		if c.errs[i] = p.check(topic); c.errs[i] == nil {
			c.made[i], c.errs[i] = p.service.message(&messages[i])
		}
		if c.errs[i] != nil {
			continue
		}
		if valid[topic] == nil {
			topics = append(topics, topic)
		}
		valid[topic] = append(valid[topic], i)
	}
	var running sync.WaitGroup
	turns := make(chan struct{}, requestsAtOnce)
	for _, topic := range topics {
		target, err := p.client.Target(ctx, topic)
		if err != nil {
			c.fail(valid[topic], err)
			continue
		}
		for _, batch := range p.service.divide(c.made, valid[topic]) {
			turns <- struct{}{}
			running.Go(func() {
				defer func() { <-turns }()
				c.send(ctx, target, batch)
			})
		}
	}
	running.Wait()
	if slices.ContainsFunc(c.errs, func(err error) bool { return err != nil }) {
		return c.errs
	}
	return nil
}

// check refuses a message for a topic that the service cannot have, and each message after Close.
func (p *Publisher) check(topic string) error {
	if err := p.Open(); err != nil {
		return err
	}
	if err := p.client.CheckTopic(topic); err != nil {
		return fmt.Errorf("%w: %w", relay.ErrRefused, err)
	}
	return nil
}

// Close ends publishing. Close does not wait for calls that run.
func (p *Publisher) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
}

// Open returns an error after Close.
func (p *Publisher) Open() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return fmt.Errorf("%w: the publisher is closed", relay.ErrUnavailable)
	}
	return nil
}

// CheckName reports the problem with the name of a queue or a topic, which has letters and digits of ASCII,
// hyphens and underscores, and may end with .fifo. most is how many characters the service allows.
func (s Service) CheckName(what, name string, most int) error {
	first := strings.TrimSuffix(name, ".fifo")
	switch {
	case len(name) > most:
		return fmt.Errorf("a %s's name of %d characters; %s allows %d", what, len(name), s.Name, most)
	case first == "":
		return fmt.Errorf("a %s's name is empty, or has no character before .fifo", what)
	}
	for _, c := range first {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' && c != '-' {
			return fmt.Errorf("a %s's name has a %q; %s allows letters and digits of ASCII, hyphens, underscores, and .fifo at the end", what, c, s.Name)
		}
	}
	return nil
}
