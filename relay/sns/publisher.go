package relaysns

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/service/sns"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/relay"
	"github.com/outboxkit/outbox-go/relay/internal/amazon"
)

// Names of the attributes that a message has beside the attributes of CloudEvents.
const (
	AttributeMessageID   = amazon.AttributeMessageID
	AttributeContentType = amazon.AttributeContentType
	// AttributeHeaders is a JSON object with the event's headers and ce-partitionkey, for which the
	// message has no room.
	AttributeHeaders = amazon.AttributeHeaders
)

// Limits of SNS. A topic takes messages of 256 KiB, and of up to 1 MiB if its MaximumMessageSize says so.
const (
	maxBytes     = 1 << 20
	requestBytes = 256 << 10
)

var service = amazon.Service{Name: "SNS", MaxBytes: maxBytes, RequestBytes: requestBytes}

// Config configures a [Publisher]. Client is required.
type Config struct {
	// Client is a client of SNS, such as sns.NewFromConfig(cfg). The client's own options apply: the
	// region, the credentials, the endpoint, and the retryer, which by default tries a request three
	// times. The client stays yours: [Publisher.Close] does not close its connections.
	Client *sns.Client
}

// Publisher is a [relay.Publisher] for SNS, and safe for concurrent use.
type Publisher struct {
	topics  topics
	batches *amazon.Publisher
}

var (
	_ relay.Publisher    = (*Publisher)(nil)
	_ relay.TopicChecker = (*Publisher)(nil)
)

// New makes a publisher and does not connect: while SNS does not answer, events stay in the outbox.
func New(cfg Config) (*Publisher, error) {
	if cfg.Client == nil {
		return nil, &outbox.FieldError{Field: "relaysns.Config.Client", Problem: "is nil; make a client with sns.NewFromConfig"}
	}
	t := topics{cfg.Client}
	return &Publisher{t, amazon.NewPublisher(service, t)}, nil
}

// Publish implements [relay.Publisher]. A request has up to ten messages of a topic, and several
// requests run at a time. Each message has an error of its own.
func (p *Publisher) Publish(ctx context.Context, messages []relay.Message) []error {
	return p.batches.Publish(ctx, messages)
}

// Ping reports whether SNS answers and accepts the credentials. Ping asks for the ARNs of topics; an
// account that may not ask gets an answer too.
func (p *Publisher) Ping(ctx context.Context) error {
	if err := p.batches.Open(); err != nil {
		return fmt.Errorf("relaysns: %w", err)
	}
	if _, err := p.topics.client.ListTopics(ctx, &sns.ListTopicsInput{}); err != nil && !amazon.IsDenied(err) {
		return fmt.Errorf("relaysns: %w", amazon.Classify(err))
	}
	return nil
}

// Close ends publishing. Close does not wait for calls that run, and leaves the client's connections
// alone. Close the outbox first.
func (p *Publisher) Close(context.Context) error {
	p.batches.Close()
	return nil
}

// CheckTopic reports the problem with the topic of a route, which is the ARN of a topic.
func (p *Publisher) CheckTopic(topic string) error { return p.topics.CheckTopic(topic) }
