package relaynats

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outboxkit/outbox-go/relay"
)

// stallWait is how long the client waits for a place in its window before the publisher looks at
// the context: the client's wait knows no context.
const stallWait = 50 * time.Millisecond

// Publish sends the messages and then waits for the acknowledgement of each message.
func (p *Publisher) Publish(ctx context.Context, messages []relay.Message) []error {
	if err := p.connected(); err != nil {
		return slices.Repeat([]error{err}, len(messages))
	}
	c := p.begin()
	defer p.end(c)
	errs, sent := make([]error, len(messages)), make([]*nats.Msg, len(messages))
	futures := make([]jetstream.PubAckFuture, len(messages))
	for i, m := range messages {
		sent[i], errs[i] = p.message(m)
		if errs[i] == nil {
			futures[i], errs[i] = p.send(ctx, sent[i])
		}
	}
	var dropped []duplicate
	for i, future := range futures {
		if errs[i] != nil {
			continue
		}
		ack, err := c.wait(ctx, messages[i].Topic, future)
		if errs[i] = err; err == nil && ack.Duplicate {
			dropped = append(dropped, duplicate{i, ack})
		}
	}
	p.verify(ctx, c, dropped, sent, errs)
	if !slices.ContainsFunc(errs, func(err error) bool { return err != nil }) {
		return nil
	}
	unrouted := map[string]error{}
	for i, err := range errs {
		if err != nil {
			errs[i] = p.classify(ctx, &messages[i], err, unrouted)
		}
	}
	return errs
}

// send sends a message when the window has a place for it.
func (p *Publisher) send(ctx context.Context, msg *nats.Msg) (future jetstream.PubAckFuture, err error) {
	for ctx.Err() == nil {
		// The client would repeat a message without an answer; the outbox does that.
		future, err = p.js.PublishMsgAsync(msg, jetstream.WithRetryAttempts(0), jetstream.WithStallWait(stallWait))
		if !errors.Is(err, jetstream.ErrTooManyStalledMsgs) {
			return future, err
		}
	}
	return nil, ctx.Err()
}

// attributePrefix is the prefix in the binding of CloudEvents to NATS.
const attributePrefix = "ce-"

// message makes the client's message. The attributes of a CloudEvent are headers with the prefix
// "ce-". The content type is a header only of a message without attributes.
func (p *Publisher) message(m relay.Message) (*nats.Msg, error) {
	if err := p.CheckTopic(m.Topic); err != nil {
		return nil, fmt.Errorf("%w: %w", relay.ErrRefused, err)
	}
	contentType := ""
	if len(m.Attributes) == 0 {
		contentType = "content-type"
	}
	list := m.HeaderList(attributePrefix, contentType)
	for i := range m.Attributes {
		list[i].Value = encode(list[i].Value)
	}
	if err := relay.CheckHeaders(list); err != nil {
		return nil, err
	}
	header := make(nats.Header, len(list)+1)
	for _, h := range list {
		if !instruction(h.Key) {
			header[h.Key] = []string{h.Value}
		}
	}
	header[jetstream.MsgIDHeader] = []string{encode(m.ID)}
	return &nats.Msg{Subject: m.Topic, Header: header, Data: m.Body}, nil
}

// instruction reports whether a header of an event would be an instruction to the server, such as
// Nats-Rollup, which deletes messages. An event may only set the lifetime of its own message.
func instruction(key string) bool {
	const prefix = "nats-"
	return len(key) >= len(prefix) && strings.EqualFold(key[:len(prefix)], prefix) && key != jetstream.MsgTTLHeader
}

// encode encodes the value of an attribute, or an id, as CloudEvents says for NATS and HTTP.
func encode(value string) string {
	plain := func(c byte) bool { return c > ' ' && c < 0x7f && c != '"' && c != '%' }
	if !slices.ContainsFunc([]byte(value), func(c byte) bool { return !plain(c) }) {
		return value
	}
	var b strings.Builder
	for _, c := range []byte(value) {
		if plain(c) {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// call is a call of Publish. A server that does not let the client publish to a subject reports
// this on the connection, and does not answer the message.
type call struct {
	news chan struct{}

	mu     sync.Mutex
	denied map[string]error // by subject
}

func (p *Publisher) begin() *call {
	c := &call{news: make(chan struct{}, 1), denied: map[string]error{}}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls[c] = true
	return c
}

func (p *Publisher) end(c *call) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.calls, c)
}

// deniedSubject is in the server's text: Permissions Violation for Publish to "subject".
var deniedSubject = regexp.MustCompile(`(?i)publish to "([^"]+)"`)

// denied tells the calls which subject the server does not allow.
func (p *Publisher) denied(err error) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return
	}
	found := deniedSubject.FindStringSubmatch(err.Error())
	if found == nil {
		return
	}
	p.mu.Lock()
	calls := slices.Collect(maps.Keys(p.calls))
	p.mu.Unlock()
	for _, c := range calls {
		c.mu.Lock()
		c.denied[found[1]] = err
		c.mu.Unlock()
		select {
		case c.news <- struct{}{}:
		default:
		}
	}
}

// wait waits for the acknowledgement of a message.
func (c *call) wait(ctx context.Context, subject string, future jetstream.PubAckFuture) (*jetstream.PubAck, error) {
	for {
		c.mu.Lock()
		err := c.denied[subject]
		c.mu.Unlock()
		if err != nil {
			return nil, err
		}
		select {
		case ack := <-future.Ok():
			return ack, nil
		case err := <-future.Err():
			return nil, err
		case <-c.news:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
