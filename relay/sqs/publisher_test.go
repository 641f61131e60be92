package relaysqs_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/relaytest"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/relay"
	relaysqs "github.com/outboxkit/outbox-go/relay/sqs"
)

// messages are n messages to a queue, with bodies from 1 to n and a key for each.
func messages(queue string, n int) []relay.Message {
	list := make([]relay.Message, n)
	for i := range list {
		id := fmt.Sprint(i + 1)
		list[i] = relay.Message{Topic: queue, Key: "k" + id, ID: queue + "-" + id, ContentType: "application/json", Body: []byte(id)}
	}
	return list
}

// isOf checks that an error has a class, or none when class is nil.
func isOf(t *testing.T, class, err error) {
	t.Helper()
	for _, c := range []error{relay.ErrRefused, relay.ErrUnroutable, relay.ErrUnavailable} {
		require.Equal(t, errors.Is(class, c), errors.Is(err, c), "%v", err)
	}
}

// The ten attributes that SQS allows are those of an event with each attribute of CloudEvents.
func TestAMessageHasTheEvent(t *testing.T) {
	s := start(t, nil)
	r, err := relay.New(relay.Config{
		Publisher: publisher(t, s.url, nil), Source: "/shop",
		Routes: []relay.Route{relay.To("orders.fifo", outbox.EventKind{AggregateType: "Order", EventType: "Placed"})},
	})
	require.NoError(t, err)
	env := outbox.Envelope{
		EventID: "e1", AggregateType: "Order", AggregateID: "o-1", EventType: "Placed", Payload: outbox.RawJSON(`{"n":1}`),
		OccurredAt: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Headers:    map[string]string{"traceparent": "00-1-2-01", "tracestate": "a=b", "odd": "\x01\uFFFF"},
	}
	require.Equal(t, []error{nil}, r.Publish(t.Context(), []outbox.Envelope{env}))
	stored := s.stored(t, "orders.fifo")
	require.Len(t, stored, 1)
	got := stored[0]
	require.Equal(t, `{"n":1}`, got.Body)
	require.Equal(t, "o-1", got.Group)
	require.Equal(t, "orders.fifo:/shop:e1", got.Deduplication)
	require.JSONEq(t, `{"traceparent": "00-1-2-01", "tracestate": "a=b", "odd": "\u0001\uffff", "ce-partitionkey": "o-1"}`, got.Attributes[relaysqs.AttributeHeaders])
	delete(got.Attributes, relaysqs.AttributeHeaders)
	require.Equal(t, map[string]string{
		"message-id": "orders.fifo:/shop:e1", "content-type": "application/json", "ce-specversion": "1.0", "ce-id": "e1", "ce-source": "/shop",
		"ce-type": "Placed", "ce-time": "2026-01-02T03:04:05Z", "ce-aggregatetype": "Order", "ce-subject": "o-1",
	}, got.Attributes)
}

func TestAFIFOQueueDropsAMessageThatItHas(t *testing.T) {
	s := start(t, nil)
	p := publisher(t, s.url, nil)
	for range 2 {
		require.Nil(t, p.Publish(t.Context(), messages("orders.fifo", 3)))
		require.Nil(t, p.Publish(t.Context(), messages("orders", 3)))
	}
	require.Equal(t, []string{"1", "2", "3"}, s.bodies(t, "orders.fifo"))
	require.Len(t, s.stored(t, "orders"), 6, "a standard queue has no deduplication id")
	require.Empty(t, s.stored(t, "orders")[0].Group)
}

// SQS allows 128 printable characters in a group. Keys that differ never share a group.
func TestAKeyThatIsNoGroupIsReplacedWithItsChecksum(t *testing.T) {
	s := start(t, nil)
	sum := func(text string) string {
		b := sha256.Sum256([]byte(text))
		return hex.EncodeToString(b[:])
	}
	long := strings.Repeat("k", 129)
	groups := map[string]string{long[1:]: long[1:], long: sum(long), "a b": sum("a b"), "Zoë": sum("Zoë"), `!"#$%&'()*+,-./:;<=>?@[\]^_{|}~` + "`": `!"#$%&'()*+,-./:;<=>?@[\]^_{|}~` + "`"}
	list := []relay.Message{}
	for key := range groups {
		m := messages("orders.fifo", 1)[0]
		m.Key, m.ID = key, key
		list = append(list, m)
	}
	list = append(list, messages("orders.fifo", 1)[0])
	list[len(list)-1].Key = ""
	groups["orders.fifo-1"] = "orders.fifo-1" // without a key: a group of its own
	require.Nil(t, publisher(t, s.url, nil).Publish(t.Context(), list))
	require.Len(t, s.stored(t, "orders.fifo"), len(groups))
	for _, m := range s.stored(t, "orders.fifo") {
		require.Equal(t, groups[m.Attributes["message-id"]], m.Group)
		require.Equal(t, m.Deduplication, m.Group)
	}
}

func TestARequestHasTenMessagesAndAMebibyte(t *testing.T) {
	var mu sync.Mutex
	var sizes []int
	s := start(t, intercept("SendMessageBatch", func(_ http.ResponseWriter, body string) bool {
		mu.Lock()
		defer mu.Unlock()
		sizes = append(sizes, strings.Count(body, `"Id":`))
		return false
	}))
	p := publisher(t, s.url, nil)
	counted := func(id string, n int) relay.Message { // a message that counts n bytes
		m := messages("orders", 1)[0]
		m.ID = id
		m.Body = []byte(strings.Repeat("S", n-len("message-id"+"String"+m.ID+"content-type"+"String"+m.ContentType)))
		return m
	}
	small := make([]int, 501)
	for i := range small {
		small[i] = 100
	}
	for name, tc := range map[string]struct{ bytes, requests []int }{
		"a mebibyte":                     {[]int{1 << 19, 1 << 19}, []int{2}},
		"a byte above":                   {[]int{1 << 19, 1<<19 + 1}, []int{1, 1}},
		"a message that fills a request": {[]int{100, 1 << 20, 100}, []int{1, 1, 1}},
		"eleven":                         {small[:11], []int{1, 10}},
		"501":                            {small, append([]int{1}, slices.Repeat([]int{10}, 50)...)},
	} {
		sizes = nil
		var list []relay.Message
		for i, n := range tc.bytes {
			list = append(list, counted(fmt.Sprint(i), n))
		}
		require.Nil(t, p.Publish(t.Context(), list), name)
		slices.Sort(sizes)
		require.Equal(t, tc.requests, sizes, name)
	}
}

func TestMessagesAboveTheLimit(t *testing.T) {
	s := start(t, nil)
	p := publisher(t, s.url, nil)
	list := messages("orders", 3)
	counted := len("message-id" + "String" + list[1].ID + "content-type" + "String" + list[1].ContentType)
	list[1].Body = []byte(strings.Repeat("S", 1<<20-counted))
	require.Nil(t, p.Publish(t.Context(), list), "a mebibyte")
	list[1].Body = append(list[1].Body, 'S')
	errs := p.Publish(t.Context(), list)
	require.NoError(t, errs[0])
	require.NoError(t, errs[2])
	isOf(t, relay.ErrRefused, errs[1])
	require.EqualError(t, errs[1], fmt.Sprintf("the broker refuses the message: a body of %d bytes and attributes of %d; SQS takes 1048576 together; "+
		"store large data elsewhere, and publish where it is", 1<<20-counted+1, counted))

	q, err := s.Create("small")
	require.NoError(t, err)
	q.MaxMessage = 1000
	list = messages("small", 3)
	list[1].Body = []byte(strings.Repeat("S", 1001))
	errs = p.Publish(t.Context(), list)
	require.NoError(t, errs[0])
	require.NoError(t, errs[2])
	isOf(t, relay.ErrRefused, errs[1])
	require.ErrorContains(t, errs[1], "Message must be shorter than 1000 bytes")
	require.NotContains(t, errs[1].Error(), "SSS", "no payload")
}

// An older server has a lower limit for a request.
func TestARequestThatIsRefusedAsAWholeIsSentByHalves(t *testing.T) {
	s := start(t, nil)
	q, err := s.Create("old")
	require.NoError(t, err)
	q.MaxRequest = 2000
	list := messages("old", 10)
	for i := range list {
		list[i].Body = []byte(strings.Repeat("S", 800))
	}
	list[6].Body = []byte(strings.Repeat("S", 2001))
	errs := publisher(t, s.url, nil).Publish(t.Context(), list)
	for i, err := range errs {
		if i != 6 {
			require.NoError(t, err)
		}
	}
	isOf(t, relay.ErrRefused, errs[6])
	require.ErrorContains(t, errs[6], "BatchRequestTooLong")
	require.Len(t, s.stored(t, "old"), 9)
}

// SQS would store other characters in place of these, or refuse them.
func TestCharactersThatSQSDoesNotTake(t *testing.T) {
	s := start(t, nil)
	p := publisher(t, s.url, nil)
	for name, tc := range map[string]struct {
		change func(m *relay.Message)
		text   string
	}{
		"control character": {func(m *relay.Message) { m.Body = []byte("S\x00") }, "the body has the character U+0000 at byte 1, which SQS does not take; take relay.Structured"},
		"no character":      {func(m *relay.Message) { m.Body = []byte("SS\uFFFE") }, "the body has the character U+FFFE at byte 2"},
		"no UTF-8":          {func(m *relay.Message) { m.Body = []byte{0xff} }, "the body has a byte 0xff at 0 that is not UTF-8"},
		"empty":             {func(m *relay.Message) { m.Body = nil }, "the body is empty"},
		"attribute":         {func(m *relay.Message) { m.Attributes = []relay.Attribute{{Name: "subject", Value: "a\x02"}} }, `the attribute "ce-subject" has the character U+0002 at byte 1`},
		"id":                {func(m *relay.Message) { m.ID = "\x7f\x1f" }, `the attribute "message-id" has the character U+001F`},
	} {
		list := messages("orders", 3)
		tc.change(&list[1])
		errs := p.Publish(t.Context(), list)
		require.NoError(t, errs[0], name)
		require.NoError(t, errs[2], name)
		isOf(t, relay.ErrRefused, errs[1])
		require.ErrorContains(t, errs[1], tc.text, name)
	}
	ok := messages("orders.fifo", 1)
	ok[0].Body = []byte("\t\n\r \u007f\uFFFD\U0010FFFF\uD7FF\uE000")
	require.Nil(t, p.Publish(t.Context(), ok), "the characters at the borders")
	require.Equal(t, string(ok[0].Body), s.bodies(t, "orders.fifo")[0])
}

func TestStructuredTakesBytes(t *testing.T) {
	s := start(t, nil)
	r, err := relay.New(relay.Config{
		Publisher: publisher(t, s.url, nil), Source: "/shop", Format: relay.Structured,
		Routes: []relay.Route{relay.To("orders", outbox.EventKind{EventType: "Placed"})},
	})
	require.NoError(t, err)
	require.Equal(t, []error{nil}, r.Publish(t.Context(), []outbox.Envelope{{EventID: "1", AggregateID: "a\x00", EventType: "Placed", Payload: outbox.Bytes("application/octet-stream", []byte{0, 0xff})}}))
	require.Contains(t, s.bodies(t, "orders")[0], `"data_base64":"AP8="`)
}

func TestQueuesThatDoNotExist(t *testing.T) {
	s := start(t, nil)
	p := publisher(t, s.url, nil)
	list := append(messages("missing", 2), messages("orders", 1)...)
	list = append(list, messages(s.url+"/000000000000/missing", 1)...)
	list = append(list, messages(s.url+"/000000000000/orders", 1)...)
	list = append(list, messages("no/name", 1)...)
	errs := p.Publish(t.Context(), list)
	for _, i := range []int{0, 1, 3} {
		isOf(t, relay.ErrUnroutable, errs[i])
		require.ErrorContains(t, errs[i], "AWS.SimpleQueueService.NonExistentQueue: The specified queue does not exist.")
	}
	require.NoError(t, errs[2])
	require.NoError(t, errs[4])
	isOf(t, relay.ErrRefused, errs[5])
	require.Len(t, s.stored(t, "orders"), 2)
}

func TestNamesOfQueues(t *testing.T) {
	p := publisher(t, "http://127.0.0.1:1", nil)
	for _, ok := range []string{"a", "A-b_1.fifo", strings.Repeat("q", 80), "https://sqs.eu-west-1.amazonaws.com/123456789012/orders.fifo"} {
		require.NoError(t, p.CheckTopic(ok))
	}
	for bad, text := range map[string]string{
		strings.Repeat("q", 76) + ".fifo": "81 characters", ".fifo": "before .fifo", "": "before .fifo", "a.b": `'.'`, "é": `'é'`,
		"https://sqs.eu-west-1.amazonaws.com/": "is not the URL", "https:///x": "is not the URL",
	} {
		require.ErrorContains(t, p.CheckTopic(bad), text)
	}
	_, err := relay.New(relay.Config{Publisher: p, Source: "/x", Routes: []relay.Route{relay.To("a.b", outbox.EventKind{EventType: "A"})}})
	require.ErrorContains(t, err, `relay.Config.Routes[0].Topic is "a.b": a queue's name has a '.'`)
}

func TestInvalidConfig(t *testing.T) {
	_, err := relaysqs.New(relaysqs.Config{})
	var field *outbox.FieldError
	require.ErrorAs(t, err, &field)
	require.Equal(t, "relaysqs.Config.Client", field.Field)
}

func TestAServerThatIsAway(t *testing.T) {
	p := publisher(t, "http://"+relaytest.FreeAddr(t), nil)
	for _, err := range p.Publish(t.Context(), messages("orders", 2)) {
		isOf(t, relay.ErrUnavailable, err)
		require.ErrorContains(t, err, "connection refused")
		require.NotContains(t, err.Error(), "secret-key")
	}
	isOf(t, relay.ErrUnavailable, p.Ping(t.Context()))
	require.NoError(t, p.Close(t.Context()))
	require.NoError(t, p.Close(t.Context()), "a second time")
	s := start(t, nil)
	p = publisher(t, s.url, nil)
	require.NoError(t, p.Ping(t.Context()))
	require.NoError(t, p.Close(t.Context()))
	isOf(t, relay.ErrUnavailable, p.Publish(t.Context(), messages("orders", 1))[0])
	isOf(t, relay.ErrUnavailable, p.Ping(t.Context()))
	require.Empty(t, s.stored(t, "orders"))
}

func TestCredentialsThatTheClientDoesNotGet(t *testing.T) {
	s := start(t, nil)
	p := publisher(t, s.url, func(o *sqs.Options) {
		o.Credentials = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{}, errors.New("no role")
		})
	})
	isOf(t, relay.ErrUnavailable, p.Publish(t.Context(), messages("orders", 1))[0])
	require.ErrorContains(t, p.Ping(t.Context()), "no role")
}
