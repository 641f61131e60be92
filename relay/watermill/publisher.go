package relaywatermill

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/relay"
)

// MetadataKey is where the metadata of a message has the key that orders the message, for a
// publisher that chooses a partition by this key.
const MetadataKey = "key"

// Config configures a [Publisher].
type Config struct {
	// Publisher is Watermill's publisher. Publish must return only when the broker has the
	// messages: an asynchronous publisher loses events. The publisher should end with the context
	// of the message, and should repeat nothing by itself. Required.
	Publisher message.Publisher
	// Classify wraps an error of the publisher with relay.ErrUnavailable, ErrRefused or
	// ErrUnroutable, or returns the error as it is, which is a failed delivery. Defaults to
	// [NetworkErrors].
	Classify func(err error) error
	// Ping is for [Publisher.Ping], because Watermill has no such method. If Ping is nil,
	// [Publisher.Ping] returns nil.
	Ping func(ctx context.Context) error
}

// Publisher is a [relay.Publisher] on a Watermill publisher, and safe for concurrent use.
type Publisher struct{ cfg Config }

var _ relay.Publisher = (*Publisher)(nil)

// New makes a publisher.
func New(cfg Config) (*Publisher, error) {
	if cfg.Publisher == nil {
		return nil, &outbox.FieldError{Field: "relaywatermill.Config.Publisher", Problem: "is nil; it is the publisher of Watermill for your broker"}
	}
	if cfg.Classify == nil {
		cfg.Classify = NetworkErrors
	}
	return &Publisher{cfg}, nil
}

// NetworkErrors wraps errors of the network and ended deadlines with relay.ErrUnavailable.
func NetworkErrors(err error) error {
	var network net.Error
	if errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("%w: %w", relay.ErrUnavailable, err)
	}
	return err
}

// Publish publishes the messages of each topic in a single call. Watermill reports a single error
// for all messages: after an error that is not an outage, each message is published alone, and
// messages that the broker took before the error are published a second time.
func (p *Publisher) Publish(ctx context.Context, messages []relay.Message) []error {
	var errs []error
	for _, topic := range topics(messages) {
		err := p.send(ctx, messages, topic)
		switch {
		case err == nil:
			continue
		case errs == nil:
			errs = make([]error, len(messages))
		}
		alone := len(topic) > 1 && !away(err)
		for _, i := range topic {
			if alone {
				err = p.send(ctx, messages, []int{i})
				alone = !away(err)
			}
			errs[i] = err
		}
	}
	return errs
}

// away reports whether the next message would fail as well.
func away(err error) bool {
	return errors.Is(err, relay.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// topics are the indexes of the messages of each topic.
func topics(messages []relay.Message) (list [][]int) {
	at := map[string]int{}
	for i, m := range messages {
		n, known := at[m.Topic]
		if !known {
			n = len(list)
			at[m.Topic], list = n, append(list, nil)
		}
		list[n] = append(list[n], i)
	}
	return list
}

// send publishes some messages of a topic.
func (p *Publisher) send(ctx context.Context, messages []relay.Message, which []int) error {
	list := make([]*message.Message, len(which))
	for i, n := range which {
		m := messages[n]
		list[i] = message.NewMessage(m.ID, m.Body)
		for _, h := range m.HeaderList("ce-", "content-type") {
			if !instruction(h.Key) {
				list[i].Metadata.Set(h.Key, h.Value)
			}
		}
		if m.Key != "" {
			list[i].Metadata.Set(MetadataKey, m.Key)
		}
		list[i].SetContext(ctx)
	}
	if err := p.cfg.Publisher.Publish(messages[which[0]].Topic, list...); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return p.cfg.Classify(err)
	}
	return nil
}

// instruction reports whether a header of an event would be an instruction to a broker, because
// Watermill's publishers pass metadata as headers: to NATS, such as Nats-Rollup, which deletes
// messages; to RabbitMQ, which refuses a text in CC and BCC; or to Watermill itself, which refuses
// its own key for the UUID.
func instruction(key string) bool {
	lower := strings.ToLower(key)
	return strings.HasPrefix(lower, "nats-") || strings.HasPrefix(lower, "_watermill_") || key == "CC" || key == "BCC" || key == "x-death"
}

// Ping calls the config's function.
func (p *Publisher) Ping(ctx context.Context) error {
	if p.cfg.Ping == nil {
		return nil
	}
	return p.cfg.Ping(ctx)
}

// Close closes Watermill's publisher. Close the outbox first.
func (p *Publisher) Close(context.Context) error {
	if err := p.cfg.Publisher.Close(); err != nil {
		return fmt.Errorf("relaywatermill: closing: %w", err)
	}
	return nil
}
