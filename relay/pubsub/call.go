package relaypubsub

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"unicode/utf8"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/outboxkit/outbox-go/relay"
)

// Names of the attributes that a message has beside those of CloudEvents.
const (
	AttributeMessageID   = "message-id"
	AttributeContentType = "content-type"

	attributePrefix = "ce-"
)

// Limits of Pub/Sub.
const (
	maxRequest    = 10_000_000 // bytes
	maxMessages   = 1_000      // of a request
	maxAttributes = 100
	maxName       = 256  // bytes of an attribute's name
	maxValue      = 1024 // bytes of an attribute's value, and of an ordering key
)

// call is a call of Publish. The indexes of its methods are indexes of messages.
type call struct {
	p        *Publisher
	messages []relay.Message
	made     []*pubsubpb.PubsubMessage
	errs     []error

	mu   sync.Mutex
	away map[string]error // by topic: the first request that found the topic away
}

// batches makes the messages and divides them into requests.
func (c *call) batches() (batches [][]int) {
	type request struct{ at, size int }
	open := map[string]*request{} // by topic: the last request of messages without a key
	for i := range c.messages {
		m := &c.messages[i]
		size, err := c.make(i)
		if err != nil {
			c.errs[i] = err
			continue
		}
		if m.Key != "" {
			batches = append(batches, []int{i})
			continue
		}
		r := open[m.Topic]
		if r == nil || len(batches[r.at]) == maxMessages || r.size+size > maxRequest {
			r = &request{at: len(batches), size: c.overhead(m.Topic)}
			open[m.Topic] = r
			batches = append(batches, nil)
		}
		batches[r.at] = append(batches[r.at], i)
		r.size += size
	}
	return batches
}

// overhead is how many bytes a request to a topic has without messages.
func (c *call) overhead(topic string) int {
	return proto.Size(&pubsubpb.PublishRequest{Topic: c.p.name(topic)})
}

// make makes the client's message, and returns how many bytes of a request it takes.
func (c *call) make(i int) (size int, err error) {
	m := &c.messages[i]
	if err := c.p.CheckTopic(m.Topic); err != nil {
		return 0, fmt.Errorf("%w: %w", relay.ErrRefused, err)
	}
	made := &pubsubpb.PubsubMessage{Data: m.Body, OrderingKey: m.Key, Attributes: map[string]string{}}
	for _, h := range m.HeaderList(attributePrefix, AttributeContentType) {
		if err := checkAttribute(h); err != nil {
			return 0, fmt.Errorf("%w: %w", relay.ErrRefused, err)
		}
		made.Attributes[h.Key] = h.Value
	}
	made.Attributes[AttributeMessageID] = m.ID
	const numberOfMessages = 2 // the field of a request
	content := proto.Size(made)
	size = protowire.SizeTag(numberOfMessages) + protowire.SizeBytes(content)
	var problem error
	switch whole := c.overhead(m.Topic) + size; {
	case len(made.Attributes) > maxAttributes:
		problem = fmt.Errorf("%d attributes; Pub/Sub takes %d", len(made.Attributes), maxAttributes)
	case len(m.Key) > maxValue:
		problem = fmt.Errorf("a key of %d bytes; Pub/Sub takes %d; let Route.KeyOf give a shorter key", len(m.Key), maxValue)
	case !utf8.ValidString(m.Key) || !utf8.ValidString(m.ID):
		problem = errors.New("a key or a message id that is not UTF-8")
	case whole > maxRequest:
		problem = fmt.Errorf("a body of %d bytes and a request of %d; Pub/Sub takes %d; store large data elsewhere, and publish where it is", len(m.Body), whole, maxRequest)
	default:
		c.made[i] = made
		return size, nil
	}
	return 0, fmt.Errorf("%w: %w", relay.ErrRefused, problem)
}

func checkAttribute(h relay.Header) error {
	switch {
	case h.Key == "":
		return errors.New("a header without a name")
	case !utf8.ValidString(h.Key) || !utf8.ValidString(h.Value):
		return fmt.Errorf("the attribute %.300q is not UTF-8", h.Key)
	case strings.HasPrefix(h.Key, "goog"):
		return fmt.Errorf("the attribute %.300q has a name that is Google's own; let Route.HeadersOf leave it out", h.Key)
	case len(h.Key) > maxName:
		return fmt.Errorf("the attribute %.300q has a name of %d bytes; Pub/Sub takes %d", h.Key, len(h.Key), maxName)
	case len(h.Value) > maxValue:
		return fmt.Errorf("the attribute %q has %d bytes; Pub/Sub takes %d", h.Key, len(h.Value), maxValue)
	default:
		return nil
	}
}

// send sends messages of a topic in a request. Pub/Sub takes all messages of a request or none. A
// request that was refused is sent again by halves, until the message to blame is alone.
func (c *call) send(ctx context.Context, indexes []int) {
	topic := c.messages[indexes[0]].Topic
	if err := c.isAway(topic); err != nil {
		c.fail(indexes, err)
		return
	}
	request := &pubsubpb.PublishRequest{Topic: c.p.name(topic), Messages: make([]*pubsubpb.PubsubMessage, len(indexes))}
	for n, i := range indexes {
		request.Messages[n] = c.made[i]
	}
	answer, err := c.p.client.TopicAdminClient.Publish(ctx, request, once)
	if err == nil && len(answer.GetMessageIds()) == len(indexes) {
		return
	}
	if err == nil {
		err = fmt.Errorf("%w: the answer has %d ids for %d messages", relay.ErrUnavailable, len(answer.GetMessageIds()), len(indexes))
	} else {
		err = classify(err)
	}
	if errors.Is(err, relay.ErrRefused) && len(indexes) > 1 {
		c.send(ctx, indexes[:len(indexes)/2])
		c.send(ctx, indexes[len(indexes)/2:])
		return
	}
	c.fail(indexes, err)
	if errors.Is(err, relay.ErrUnavailable) {
		c.mu.Lock()
		c.away[topic] = err
		c.mu.Unlock()
	}
}

func (c *call) isAway(topic string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.away[topic]
}

func (c *call) fail(indexes []int, err error) {
	for _, i := range indexes {
		c.errs[i] = err
	}
}

// classify says which kind of failure an error is. The text of the service is cut.
func classify(err error) error {
	s, ok := status.FromError(err)
	if !ok { // a context's, or of credentials
		return fmt.Errorf("%w: %w", relay.ErrUnavailable, err)
	}
	const most = 500
	text := fmt.Sprintf("%s: %.*s", s.Code(), most, s.Message())
	switch s.Code() {
	case codes.InvalidArgument:
		return fmt.Errorf("%w: %s", relay.ErrRefused, text)
	case codes.NotFound:
		return fmt.Errorf("%w: %s", relay.ErrUnroutable, text)
	case codes.PermissionDenied, codes.Unimplemented, codes.AlreadyExists, codes.OutOfRange, codes.DataLoss:
		return errors.New(text) // an operator may fix it
	default: // the network, the quota, the credentials, a key of the topic that is disabled, a fault of the service
		return fmt.Errorf("%w: %s", relay.ErrUnavailable, text)
	}
}
