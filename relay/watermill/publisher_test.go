package relaywatermill_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/outboxkit/outbox-go/internal/testing/relaytest"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/relay"
	relaywatermill "github.com/outboxkit/outbox-go/relay/watermill"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// broker is a publisher of Watermill that takes the messages of a call one by one, as most
// do, until one of them fails.
type broker struct {
	got   []string
	calls int
	fail  func(id string) error
}

func (b *broker) Publish(topic string, messages ...*message.Message) error {
	b.calls++
	for _, m := range messages {
		if err := b.fail(m.UUID); err != nil {
			return fmt.Errorf("cannot publish: %w", err)
		}
		b.got = append(b.got, topic+" "+m.UUID)
	}
	return nil
}

func (b *broker) Close() error { return errors.New("cannot close") }

func publisher(t *testing.T, cfg relaywatermill.Config) *relaywatermill.Publisher {
	t.Helper()
	p, err := relaywatermill.New(cfg)
	require.NoError(t, err)
	return p
}

var list = []relay.Message{{Topic: "a", ID: "1"}, {Topic: "b", ID: "2"}, {Topic: "a", ID: "3"}, {Topic: "a", ID: "4"}}

func TestAMessageHasTheEvent(t *testing.T) {
	channel := gochannel.NewGoChannel(gochannel.Config{OutputChannelBuffer: 1}, watermill.NopLogger{})
	got, err := channel.Subscribe(t.Context(), "orders")
	require.NoError(t, err)
	p := publisher(t, relaywatermill.Config{Publisher: channel})
	require.Nil(t, p.Publish(t.Context(), []relay.Message{{
		Topic: "orders", Key: "o1", ID: "e1", ContentType: "application/json", Body: []byte(`{}`),
		Attributes: []relay.Attribute{{Name: "type", Value: "Placed"}}, Headers: map[string]string{
			"traceparent": "00-1-2-01", "Nats-Rollup": "all", "CC": "b", "_watermill_message_uuid": "c", // instructions to brokers
		},
	}}))
	m := <-got
	m.Ack()
	require.Equal(t, "e1", m.UUID)
	require.Equal(t, `{}`, string(m.Payload))
	require.Equal(t, message.Metadata{"ce-type": "Placed", "content-type": "application/json", "traceparent": "00-1-2-01", "key": "o1"}, m.Metadata)
	require.NoError(t, p.Ping(t.Context()))
	require.NoError(t, p.Close(t.Context()))
}

func TestOneCallForEachTopic(t *testing.T) {
	b := &broker{fail: func(string) error { return nil }}
	p := publisher(t, relaywatermill.Config{Publisher: b, Ping: func(context.Context) error { return errors.New("away") }})
	require.Nil(t, p.Publish(t.Context(), list))
	require.Equal(t, 2, b.calls)
	require.Equal(t, []string{"a 1", "a 3", "a 4", "b 2"}, b.got)
	require.EqualError(t, p.Ping(t.Context()), "away")
	require.EqualError(t, p.Close(t.Context()), "relaywatermill: closing: cannot close")
}

func TestOneMessageThatFailsIsFound(t *testing.T) {
	poison := errors.New("poison")
	b := &broker{fail: func(id string) error {
		if id == "3" {
			return poison
		}
		return nil
	}}
	p := publisher(t, relaywatermill.Config{Publisher: b})
	errs := p.Publish(t.Context(), list)
	require.Len(t, errs, 4)
	for i, err := range errs {
		require.Equal(t, list[i].ID == "3", errors.Is(err, poison))
	}
	require.NotErrorIs(t, errs[2], relay.ErrUnavailable)
	require.Equal(t, []string{"a 1", "a 1", "a 4", "b 2"}, b.got, "what was taken before the failure is published again")
}

func TestAnOutageIsTriedOnceForEachTopic(t *testing.T) {
	b := &broker{fail: func(string) error { return context.DeadlineExceeded }}
	p := publisher(t, relaywatermill.Config{Publisher: b})
	errs := p.Publish(t.Context(), list)
	require.Len(t, errs, 4)
	for _, err := range errs {
		require.ErrorIs(t, err, relay.ErrUnavailable)
	}
	require.Equal(t, 2, b.calls)

	p = publisher(t, relaywatermill.Config{Publisher: b, Classify: func(err error) error { return fmt.Errorf("%w: %w", relay.ErrRefused, err) }})
	require.ErrorIs(t, p.Publish(t.Context(), list[:1])[0], relay.ErrRefused)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, p.Publish(ctx, list[:1])[0], context.Canceled)
}

func TestInvalidConfig(t *testing.T) {
	_, err := relaywatermill.New(relaywatermill.Config{})
	var field *outbox.FieldError
	require.ErrorAs(t, err, &field)
	require.Equal(t, "relaywatermill.Config.Publisher", field.Field)
}

// connect makes a publisher on Watermill's for Redis Streams.
func connect(t testing.TB, addr string) relay.Publisher {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, ContextTimeoutEnabled: true, DialTimeout: time.Second})
	p, err := redisstream.NewPublisher(redisstream.PublisherConfig{Client: client}, nil)
	require.NoError(t, err)
	r, err := relaywatermill.New(relaywatermill.Config{
		Publisher: p,
		Classify: func(err error) error {
			if redis.HasErrorPrefix(err, "LOADING") {
				return fmt.Errorf("%w: %w", relay.ErrUnavailable, err)
			}
			return relaywatermill.NetworkErrors(err)
		},
		Ping: func(ctx context.Context) error { return client.Ping(ctx).Err() },
	})
	require.NoError(t, err)
	return r
}

func TestNothingIsLostWhileTheServerIsKilled(t *testing.T) {
	addr, server := relaytest.StartRedis(t)
	client := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1})
	t.Cleanup(func() { _ = client.Close() })
	relaytest.Prove(t, relaytest.Broker{
		Addr: addr, Connect: connect, Server: server,
		Stored: func(t testing.TB) []relaytest.Stored { return stored(t, client) },
	})
}

// stored reads the stream, some entries at a time.
func stored(t testing.TB, client *redis.Client) (all []relaytest.Stored) {
	t.Helper()
	for start := "-"; ; {
		entries, err := client.XRangeN(t.Context(), relaytest.Topic, start, "+", 1_000).Result()
		require.NoError(t, err)
		for _, e := range entries {
			start = "(" + e.ID
			all = append(all, relaytest.Stored{ID: e.Values[redisstream.UUIDHeaderKey].(string), Body: []byte(e.Values["payload"].(string))})
		}
		if len(entries) == 0 {
			return all
		}
	}
}

func BenchmarkAgainstALoop(b *testing.B) {
	addr, _ := relaytest.StartRedis(b)
	client := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1})
	bare, err := redisstream.NewPublisher(redisstream.PublisherConfig{Client: client}, nil)
	require.NoError(b, err)
	b.Cleanup(func() { _ = bare.Close() })
	ours := connect(b, addr)
	b.Cleanup(func() { _ = ours.Close(context.Background()) })
	relaytest.Compare(b, ours, func(ctx context.Context, messages []relay.Message) error {
		list := make([]*message.Message, len(messages))
		for i, m := range messages {
			list[i] = message.NewMessage(m.ID, m.Body)
			for _, a := range m.Attributes {
				list[i].Metadata.Set("ce-"+a.Name, a.Value)
			}
			list[i].SetContext(ctx)
		}
		return bare.Publish(messages[0].Topic, list...)
	})
}
