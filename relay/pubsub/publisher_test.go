package relaypubsub_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/stretchr/testify/require"
	"google.golang.org/api/option"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/outboxkit/outbox-go/internal/testing/relaytest"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/relay"
	relaypubsub "github.com/outboxkit/outbox-go/relay/pubsub"
)

// messages are n messages to a topic without keys, with bodies from 1 to n.
func messages(topic string, n int) []relay.Message {
	list := make([]relay.Message, n)
	for i := range list {
		id := fmt.Sprint(i + 1)
		list[i] = relay.Message{Topic: topic, ID: topic + "-" + id, ContentType: "application/json", Body: []byte(id)}
	}
	return list
}

// isOf checks that an error has a class, or none when class is nil.
func isOf(t *testing.T, class, err error) {
	t.Helper()
	require.Error(t, err)
	for _, c := range []error{relay.ErrRefused, relay.ErrUnroutable, relay.ErrUnavailable} {
		require.Equal(t, errors.Is(class, c), errors.Is(err, c), "%v", err)
	}
}

// sizes counts the messages of each request.
func sizes(mu *sync.Mutex, list *[]int) handler {
	return func(_ context.Context, request any) (any, error, bool) {
		if r, ok := request.(*pubsubpb.PublishRequest); ok {
			mu.Lock()
			defer mu.Unlock()
			*list = append(*list, len(r.GetMessages()))
		}
		return nil, nil, false
	}
}

func TestAMessageHasTheEvent(t *testing.T) {
	s := start(t, nil)
	r, err := relay.New(relay.Config{
		Publisher: publisher(t, s.addr), Source: "/shop",
		Routes: []relay.Route{relay.To("orders", outbox.EventKind{AggregateType: "Order", EventType: "Placed"})},
	})
	require.NoError(t, err)
	env := outbox.Envelope{
		EventID: "e1", AggregateType: "Order", AggregateID: "Zoë \x01", EventType: "Placed", Payload: outbox.RawJSON(`{"n":1}`),
		OccurredAt: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Headers: map[string]string{"traceparent": "00-1-2-01", "message-id": "another"},
	}
	require.Equal(t, []error{nil}, r.Publish(t.Context(), []outbox.Envelope{env}))
	require.Len(t, s.Messages(), 1)
	got := s.Messages()[0]
	require.Equal(t, `{"n":1}`, string(got.Data))
	require.Equal(t, "Zoë \x01", got.OrderingKey)
	require.Equal(t, "projects/shop/topics/orders", got.Topic)
	require.Equal(t, map[string]string{
		"message-id": "orders:/shop:e1", "content-type": "application/json", "ce-specversion": "1.0", "ce-id": "e1", "ce-source": "/shop", "ce-type": "Placed",
		"ce-time": "2026-01-02T03:04:05Z", "ce-aggregatetype": "Order", "ce-subject": "Zoë \x01", "ce-partitionkey": "Zoë \x01", "traceparent": "00-1-2-01",
	}, got.Attributes)
}

// All messages of a request have the same ordering key.
func TestMessagesWithoutKeysShareRequests(t *testing.T) {
	var mu sync.Mutex
	var seen []int
	s := start(t, sizes(&mu, &seen))
	p := publisher(t, s.addr)
	list := messages("orders", 1001)
	for i := range 3 {
		m := messages(relaytest.Topic, 1)[0]
		m.Key = fmt.Sprint("k", i)
		list = append(list, m)
	}
	require.Nil(t, p.Publish(t.Context(), list))
	slices.Sort(seen)
	require.Equal(t, []int{1, 1, 1, 1, 1000}, seen)
	require.Len(t, s.Messages(), 1004)
}

func TestTenMegabytesARequest(t *testing.T) {
	var mu sync.Mutex
	var seen []int
	s := start(t, sizes(&mu, &seen))
	p := publisher(t, s.addr)
	request := func(list []relay.Message) int { // bytes
		r := &pubsubpb.PublishRequest{Topic: "projects/shop/topics/orders"}
		for _, m := range list {
			r.Messages = append(r.Messages, &pubsubpb.PubsubMessage{Data: m.Body, Attributes: map[string]string{"message-id": m.ID, "content-type": m.ContentType}})
		}
		return proto.Size(r)
	}
	filled := func(n, size int) []relay.Message { // messages whose request has a size
		list := messages("orders", n)
		for i := range list {
			list[i].Body = []byte(strings.Repeat("S", size/n-200))
		}
		missing := size - request(list)
		list[0].Body = append(list[0].Body, strings.Repeat("S", missing)...)
		require.Equal(t, size, request(list))
		return list
	}
	for _, tc := range []struct {
		list []relay.Message
		want []int
	}{
		{filled(2, 10_000_000), []int{2}},
		{filled(2, 10_000_001), []int{1, 1}},
		{filled(1, 10_000_000), []int{1}},
	} {
		seen = nil
		require.Nil(t, p.Publish(t.Context(), tc.list))
		require.Equal(t, tc.want, seen)
	}
	errs := p.Publish(t.Context(), slices.Concat(messages("orders", 1), filled(1, 10_000_001)))
	require.NoError(t, errs[0])
	isOf(t, relay.ErrRefused, errs[1])
	require.ErrorContains(t, errs[1], "a request of 10000001; Pub/Sub takes 10000000")
	require.NotContains(t, errs[1].Error(), "SSS", "no payload")
}

func TestMessagesThatPubSubDoesNotTake(t *testing.T) {
	s := start(t, nil)
	p := publisher(t, s.addr)
	header := func(key, value string) func(m *relay.Message) {
		return func(m *relay.Message) { m.Headers = map[string]string{key: value} }
	}
	for text, change := range map[string]func(m *relay.Message){
		`the attribute "a" has 1025 bytes; Pub/Sub takes 1024`: header("a", strings.Repeat("x", 1025)),
		`has a name of 257 bytes; Pub/Sub takes 256`:           header(strings.Repeat("x", 257), "a"),
		"a header without a name":                              header("", "a"),
		`"goog-x" has a name that is Google's own`:             header("goog-x", "a"),
		`the attribute "a" is not UTF-8`:                       header("a", "\xff"),
		"a key or a message id that is not UTF-8":              func(m *relay.Message) { m.Key = "\xff" },
		"a key of 1025 bytes; Pub/Sub takes 1024":              func(m *relay.Message) { m.Key = strings.Repeat("k", 1025) },
		"a topic's id has a ' '":                               func(m *relay.Message) { m.Topic = "a topic" },
		"101 attributes; Pub/Sub takes 100": func(m *relay.Message) {
			m.Headers = map[string]string{}
			for i := range 99 {
				m.Headers[fmt.Sprint(i)] = "x"
			}
		},
	} {
		list := messages("orders", 3)
		change(&list[1])
		errs := p.Publish(t.Context(), list)
		require.NoError(t, errs[0], text)
		require.NoError(t, errs[2], text)
		isOf(t, relay.ErrRefused, errs[1])
		require.ErrorContains(t, errs[1], text)
	}
	m := messages("orders", 1)
	m[0].Key, m[0].Body, m[0].Headers = strings.Repeat("k", 1024), nil, map[string]string{strings.Repeat("x", 256): strings.Repeat("x", 1024)}
	for i := range 97 {
		m[0].Headers[fmt.Sprint(i)] = "x"
	}
	require.Nil(t, p.Publish(t.Context(), m), "each limit reached")
}

// A schema of the topic refuses one message of a request, and no message of it is stored.
func TestARequestThatIsRefusedIsSentByHalves(t *testing.T) {
	s := start(t, func(_ context.Context, request any) (any, error, bool) {
		for _, m := range request.(*pubsubpb.PublishRequest).GetMessages() {
			if string(m.GetData()) == "7" {
				return nil, status.Error(codes.InvalidArgument, "no schema has it"), true
			}
		}
		return nil, nil, false
	})
	errs := publisher(t, s.addr).Publish(t.Context(), messages("orders", 10))
	for i, err := range errs {
		if i == 6 {
			isOf(t, relay.ErrRefused, err)
			require.ErrorContains(t, err, "InvalidArgument: no schema has it")
		} else {
			require.NoError(t, err)
		}
	}
	require.Len(t, s.Messages(), 9)
}

func TestAnswersHaveAClass(t *testing.T) {
	for code, class := range map[codes.Code]error{
		codes.Unavailable: relay.ErrUnavailable, codes.ResourceExhausted: relay.ErrUnavailable, codes.Internal: relay.ErrUnavailable, codes.Unknown: relay.ErrUnavailable,
		codes.Aborted: relay.ErrUnavailable, codes.DeadlineExceeded: relay.ErrUnavailable, codes.Canceled: relay.ErrUnavailable, codes.Unauthenticated: relay.ErrUnavailable,
		codes.FailedPrecondition: relay.ErrUnavailable, codes.NotFound: relay.ErrUnroutable, codes.InvalidArgument: relay.ErrRefused, codes.PermissionDenied: nil,
		codes.Unimplemented: nil,
	} {
		s := start(t, func(context.Context, any) (any, error, bool) {
			return nil, status.Error(code, "because "+strings.Repeat("x", 5_000)), true
		})
		for _, err := range publisher(t, s.addr).Publish(t.Context(), messages("orders", 3)) {
			isOf(t, class, err)
			require.ErrorContains(t, err, code.String()+": because xxx")
			require.Less(t, len(err.Error()), 1000, "a huge text is cut")
		}
	}
}

func TestTopicsThatDoNotExist(t *testing.T) {
	s := start(t, nil)
	list := slices.Concat(messages("missing", 2), messages("orders", 1), messages("projects/other/topics/orders", 1), messages("projects/shop/topics/orders", 1))
	errs := publisher(t, s.addr).Publish(t.Context(), list)
	for _, i := range []int{0, 1, 3} {
		isOf(t, relay.ErrUnroutable, errs[i])
	}
	require.NoError(t, errs[2])
	require.NoError(t, errs[4])
}

// A topic that is away gets no further request of the call, and other topics get theirs.
func TestATopicThatIsAwayIsAskedOnce(t *testing.T) {
	var mu sync.Mutex
	asked := 0
	s := start(t, func(_ context.Context, request any) (any, error, bool) {
		if strings.HasSuffix(request.(*pubsubpb.PublishRequest).GetTopic(), "orders") {
			mu.Lock()
			defer mu.Unlock()
			asked++
			return nil, status.Error(codes.Unavailable, "later"), true
		}
		return nil, nil, false
	})
	list := append(messages("orders", 1000), messages(relaytest.Topic, 10)...)
	for i := range list {
		list[i].Key = fmt.Sprint(i)
	}
	for i, err := range publisher(t, s.addr).Publish(t.Context(), list) {
		if i < 1000 {
			isOf(t, relay.ErrUnavailable, err)
		} else {
			require.NoError(t, err)
		}
	}
	require.LessOrEqual(t, asked, 200, "about the requests that ran at a time")
}

// The message is stored, and its acknowledgement is lost. A topic does not drop repeated messages.
func TestAnAcknowledgementThatIsLost(t *testing.T) {
	var s *server
	var lose sync.Once
	s = start(t, func(ctx context.Context, request any) (answer any, err error, handled bool) {
		lose.Do(func() {
			_, err = s.GServer.Publish(ctx, request.(*pubsubpb.PublishRequest))
			handled, err = true, errors.Join(err, status.Error(codes.Unavailable, "the connection is closing"))
		})
		return nil, err, handled
	})
	p := publisher(t, s.addr)
	isOf(t, relay.ErrUnavailable, p.Publish(t.Context(), messages("orders", 1))[0])
	require.Nil(t, p.Publish(t.Context(), messages("orders", 1)))
	require.Equal(t, []string{"1", "1"}, s.bodies())
}

func TestAServerThatDoesNotAnswer(t *testing.T) {
	came, done := make(chan struct{}, 1000), make(chan struct{})
	s := start(t, func(context.Context, any) (any, error, bool) {
		came <- struct{}{}
		<-done
		return nil, status.Error(codes.Unavailable, "too late"), true
	})
	defer close(done)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-came
		cancel()
	}()
	list := messages("orders", 300)
	for i := range list {
		list[i].Key = fmt.Sprint(i)
	}
	for _, err := range publisher(t, s.addr).Publish(ctx, list) {
		isOf(t, relay.ErrUnavailable, err)
	}
}

func TestAnAnswerWithoutTheMessages(t *testing.T) {
	s := start(t, func(context.Context, any) (any, error, bool) { return &pubsubpb.PublishResponse{}, nil, true })
	err := publisher(t, s.addr).Publish(t.Context(), messages("orders", 2))[1]
	isOf(t, relay.ErrUnavailable, err)
	require.ErrorContains(t, err, "the answer has 0 ids for 2 messages")
}

func TestAServerThatIsAway(t *testing.T) {
	s := start(t, nil)
	s.Kill(t)
	p := publisher(t, s.addr)
	for _, err := range p.Publish(t.Context(), messages("orders", 2)) {
		isOf(t, relay.ErrUnavailable, err)
		require.ErrorContains(t, err, "connection refused")
	}
	isOf(t, relay.ErrUnavailable, p.Ping(t.Context()))
	s.Start(t)
	relaytest.Eventually(t, "the client connects again", func() bool { return p.Ping(t.Context()) == nil })
	require.Nil(t, p.Publish(t.Context(), messages("orders", 2)))
	require.NoError(t, p.Close(t.Context()))
	require.NoError(t, p.Close(t.Context()), "a second time")
	isOf(t, relay.ErrUnavailable, p.Publish(t.Context(), messages("orders", 1))[0])
}

func TestPingOfAnAccountThatMayNotAsk(t *testing.T) {
	code := codes.PermissionDenied
	s := start(t, func(context.Context, any) (any, error, bool) { return nil, status.Error(code, "no"), true })
	p := publisher(t, s.addr)
	require.NoError(t, p.Ping(t.Context()))
	code = codes.Unauthenticated
	isOf(t, relay.ErrUnavailable, p.Ping(t.Context()))
}

func TestNamesOfTopics(t *testing.T) {
	p := publisher(t, "127.0.0.1:1")
	for _, ok := range []string{"abc", "A-b_1.~+%", "a" + strings.Repeat("t", 254), "projects/shop/topics/orders"} {
		require.NoError(t, p.CheckTopic(ok))
	}
	for bad, text := range map[string]string{
		"ab": "2 characters", "a" + strings.Repeat("t", 255): "256 characters", "1bc": "begins with a letter", "google": "goog", "a b": "' '", "abé": "'é'",
		"projects/shop/orders": "is not the name", "projects//topics/orders": "is not the name", "projects/shop/topics/a": "1 characters", "": "0 characters",
	} {
		require.ErrorContains(t, p.CheckTopic(bad), text)
	}
	_, err := relay.New(relay.Config{Publisher: p, Source: "/x", Routes: []relay.Route{relay.To("a b", outbox.EventKind{EventType: "A"})}})
	require.ErrorContains(t, err, `relay.Config.Routes[0].Topic is "a b": a topic's id has a ' '`)
}

func TestInvalidConfig(t *testing.T) {
	_, err := relaypubsub.New(relaypubsub.Config{})
	var field *outbox.FieldError
	require.ErrorAs(t, err, &field)
	require.Equal(t, "relaypubsub.Config.Project", field.Field)
	_, err = relaypubsub.New(relaypubsub.Config{Project: "shop", Options: []option.ClientOption{option.WithoutAuthentication(), option.WithAPIKey("k")}})
	require.ErrorContains(t, err, "relaypubsub: the options of the client: ")
}
