// Package webhook publishes messages to an HTTP endpoint for each topic. The page on writing a
// publisher shows this code.
package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/outboxkit/outbox-go/relay"
)

// Publisher posts each message to base/topic. A Publisher is safe for concurrent use.
type Publisher struct {
	base   string
	client *http.Client
}

var (
	_ relay.Publisher    = (*Publisher)(nil)
	_ relay.TopicChecker = (*Publisher)(nil)
)

// New makes the publisher of an endpoint, such as "https://events.example.com/in".
func New(base string) *Publisher {
	return &Publisher{base: base, client: &http.Client{}}
}

// Publish implements [relay.Publisher].
func (p *Publisher) Publish(ctx context.Context, messages []relay.Message) []error {
	var errs []error // nil as long as all are acknowledged
	for i, m := range messages {
		if err := p.post(ctx, m); err != nil {
			if errs == nil {
				errs = make([]error, len(messages))
			}
			errs[i] = err
		}
	}
	return errs
}

func (p *Publisher) post(ctx context.Context, m relay.Message) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.base+"/"+url.PathEscape(m.Topic), bytes.NewReader(m.Body))
	if err != nil {
		return fmt.Errorf("%w: %w", relay.ErrRefused, err)
	}
	for key, value := range m.Headers {
		req.Header.Set(key, value)
	}
	for _, a := range m.Attributes {
		req.Header.Set("ce-"+a.Name, a.Value)
	}
	req.Header.Set("Content-Type", m.ContentType)
	req.Header.Set("Idempotency-Key", m.ID) // the receiver drops a second copy
	res, err := p.client.Do(req)
	if err != nil {
		return fmt.Errorf("%w: %w", relay.ErrUnavailable, err)
	}
	return errors.Join(classOf(res.StatusCode), res.Body.Close())
}

// classOf returns an error of a class, which decides the outcome of the event.
func classOf(status int) error {
	switch {
	case status < 300:
		return nil
	case status == http.StatusNotFound:
		return fmt.Errorf("%w: %s", relay.ErrUnroutable, http.StatusText(status))
	case status == http.StatusTooManyRequests, status == http.StatusUnauthorized, status >= 500:
		return fmt.Errorf("%w: %s", relay.ErrUnavailable, http.StatusText(status))
	case status == http.StatusRequestEntityTooLarge, status == http.StatusBadRequest:
		return fmt.Errorf("%w: %s", relay.ErrRefused, http.StatusText(status))
	default:
		return fmt.Errorf("the endpoint answered %d", status) // retried, and DEAD in the end
	}
}

// CheckTopic implements [relay.TopicChecker].
func (p *Publisher) CheckTopic(topic string) error {
	if len(topic) > 100 {
		return fmt.Errorf("has %d bytes; the endpoint takes 100", len(topic))
	}
	return nil
}

// Ping implements [relay.Publisher].
func (p *Publisher) Ping(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodHead, p.base, nil)
	if err != nil {
		return err
	}
	res, err := p.client.Do(req)
	if err != nil {
		return fmt.Errorf("%w: %w", relay.ErrUnavailable, err)
	}
	return res.Body.Close()
}

// Close implements [relay.Publisher].
func (p *Publisher) Close(context.Context) error {
	p.client.CloseIdleConnections()
	return nil
}
