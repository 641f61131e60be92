package relaysqs

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

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

// maxBytes is the most bytes of a message, and of all messages of a request.
const maxBytes = 1 << 20

var service = amazon.Service{Name: "SQS", MaxBytes: maxBytes, RequestBytes: maxBytes}

// Config configures a [Publisher]. Client is required.
type Config struct {
	// Client is a client of SQS, such as sqs.NewFromConfig(cfg). The client's own options apply: the
	// region, the credentials, the endpoint, and the retryer, which by default tries a request three
	// times. The client stays yours: [Publisher.Close] does not close its connections.
	Client *sqs.Client
}

// Publisher is a [relay.Publisher] for SQS, and safe for concurrent use.
type Publisher struct {
	queues  *queues
	batches *amazon.Publisher
}

var (
	_ relay.Publisher    = (*Publisher)(nil)
	_ relay.TopicChecker = (*Publisher)(nil)
)

// New makes a publisher and does not connect: while SQS does not answer, events stay in the outbox.
func New(cfg Config) (*Publisher, error) {
	if cfg.Client == nil {
		return nil, &outbox.FieldError{Field: "relaysqs.Config.Client", Problem: "is nil; make a client with sqs.NewFromConfig"}
	}
	q := &queues{client: cfg.Client, urls: map[string]string{}}
	return &Publisher{q, amazon.NewPublisher(service, q)}, nil
}

// Publish implements [relay.Publisher]. A request has up to ten messages of a queue, and several
// requests run at a time. Each message has an error of its own.
func (p *Publisher) Publish(ctx context.Context, messages []relay.Message) []error {
	return p.batches.Publish(ctx, messages)
}

// Ping reports whether SQS answers and accepts the credentials. Ping asks for the name of a queue;
// an account that may not ask gets an answer too.
func (p *Publisher) Ping(ctx context.Context) error {
	if err := p.batches.Open(); err != nil {
		return fmt.Errorf("relaysqs: %w", err)
	}
	if _, err := p.queues.client.ListQueues(ctx, &sqs.ListQueuesInput{MaxResults: aws.Int32(1)}); err != nil && !amazon.IsDenied(err) {
		return fmt.Errorf("relaysqs: %w", amazon.Classify(err))
	}
	return nil
}

// Close ends publishing. Close does not wait for calls that run, and leaves the client's connections
// alone. Close the outbox first.
func (p *Publisher) Close(context.Context) error {
	p.batches.Close()
	return nil
}

// CheckTopic reports the problem with the topic of a route, which is the name or the URL of a queue.
func (p *Publisher) CheckTopic(topic string) error { return p.queues.CheckTopic(topic) }
