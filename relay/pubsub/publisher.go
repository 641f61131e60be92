package relaypubsub

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/googleapis/gax-go/v2"
	"google.golang.org/api/iterator"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outboxkit/outbox-go/relay"
)

// requestsAtOnce is how many requests of a call run at a time. A connection has 100 at most.
const requestsAtOnce = 100

// Publisher is a [relay.Publisher] for Pub/Sub, and safe for concurrent use.
type Publisher struct {
	client  *pubsub.Client
	project string
	closed  atomic.Bool
}

var (
	_ relay.Publisher    = (*Publisher)(nil)
	_ relay.TopicChecker = (*Publisher)(nil)
)

// Publish implements [relay.Publisher]. A message with a key is a request of its own, because all
// messages of a request have the same ordering key. Messages without a key share requests.
func (p *Publisher) Publish(ctx context.Context, messages []relay.Message) []error {
	c := &call{
		p: p, messages: messages, made: make([]*pubsubpb.PubsubMessage, len(messages)), errs: make([]error, len(messages)),
		away: map[string]error{},
	}
	var running sync.WaitGroup
	turns := make(chan struct{}, requestsAtOnce)
	for _, batch := range c.batches() {
		turns <- struct{}{}
		running.Go(func() {
			defer func() { <-turns }()
			c.send(ctx, batch)
		})
	}
	running.Wait()
	if slices.ContainsFunc(c.errs, func(err error) bool { return err != nil }) {
		return c.errs
	}
	return nil
}

// name is the whole name of a topic.
func (p *Publisher) name(topic string) string {
	if strings.Contains(topic, "/") {
		return topic
	}
	return "projects/" + p.project + "/topics/" + topic
}

// once lets the client try a request once. The client would try again until the time of the call is
// up, and the outbox tries again too.
var once = gax.WithRetry(func() gax.Retryer { return nil })

// Ping reports whether Pub/Sub answers and accepts the credentials. Ping asks for the name of a
// topic; an account that may not ask gets an answer too.
func (p *Publisher) Ping(ctx context.Context) error {
	topics := p.client.TopicAdminClient.ListTopics(ctx, &pubsubpb.ListTopicsRequest{Project: "projects/" + p.project, PageSize: 1}, once)
	if _, err := topics.Next(); err != nil && !errors.Is(err, iterator.Done) && status.Code(err) != codes.PermissionDenied {
		return fmt.Errorf("relaypubsub: %w", classify(err))
	}
	return nil
}

// Close closes the connections. Events that are being published then fail as during an outage, so
// close the outbox first.
func (p *Publisher) Close(context.Context) error {
	if !p.closed.CompareAndSwap(false, true) {
		return nil
	}
	if err := p.client.Close(); err != nil {
		return fmt.Errorf("relaypubsub: closing: %w", err)
	}
	return nil
}
