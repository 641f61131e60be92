package relaysns_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/relaytest"
	"github.com/outboxkit/outbox-go/internal/testing/snstest"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/relay"
	relaysns "github.com/outboxkit/outbox-go/relay/sns"
)

const (
	standard = snstest.Prefix + "orders"
	fifo     = snstest.Prefix + "orders.fifo"
)

// messages are n messages to a topic, with bodies from 1 to n and a key for each.
func messages(arn string, n int) []relay.Message {
	list := make([]relay.Message, n)
	for i := range list {
		id := fmt.Sprint(i + 1)
		list[i] = relay.Message{Topic: arn, Key: "k" + id, ID: arn + "-" + id, ContentType: "application/json", Body: []byte(id)}
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

// A message has ten attributes at most: a queue that gets messages in raw form takes no more.
func TestAMessageHasTheEvent(t *testing.T) {
	s := start(t, nil)
	r, err := relay.New(relay.Config{
		Publisher: publisher(t, s.url, nil), Source: "/shop",
		Routes: []relay.Route{relay.To(fifo, outbox.EventKind{AggregateType: "Order", EventType: "Placed"})},
	})
	require.NoError(t, err)
	env := outbox.Envelope{
		EventID: "e1", AggregateType: "Order", AggregateID: "o-1", EventType: "Placed", Payload: outbox.RawJSON(`{"n":1}`),
		OccurredAt: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Headers:    map[string]string{"traceparent": "00-1-2-01", "odd": "\x01\uFFFF é&=+"},
	}
	require.Equal(t, []error{nil}, r.Publish(t.Context(), []outbox.Envelope{env}))
	stored := s.stored(t, "orders.fifo")
	require.Len(t, stored, 1)
	got := stored[0]
	require.Equal(t, `{"n":1}`, got.Body)
	require.Equal(t, "o-1", got.Group)
	require.Equal(t, fifo+":/shop:e1", got.Deduplication)
	require.JSONEq(t, `{"traceparent": "00-1-2-01", "odd": "\u0001\uffff é&=+", "ce-partitionkey": "o-1"}`, got.Attributes[relaysns.AttributeHeaders])
	delete(got.Attributes, relaysns.AttributeHeaders)
	require.Equal(t, map[string]string{
		"message-id": fifo + ":/shop:e1", "content-type": "application/json", "ce-specversion": "1.0", "ce-id": "e1", "ce-source": "/shop",
		"ce-type": "Placed", "ce-time": "2026-01-02T03:04:05Z", "ce-aggregatetype": "Order", "ce-subject": "o-1",
	}, got.Attributes)
}

func TestAFIFOTopicDropsAMessageThatItHas(t *testing.T) {
	s := start(t, nil)
	p := publisher(t, s.url, nil)
	for range 2 {
		require.Nil(t, p.Publish(t.Context(), messages(fifo, 3)))
		require.Nil(t, p.Publish(t.Context(), messages(standard, 3)))
	}
	require.Len(t, s.stored(t, "orders.fifo"), 3)
	require.Len(t, s.stored(t, "orders"), 6, "a standard topic has no deduplication id")
	require.Empty(t, s.stored(t, "orders")[0].Group)
	require.Equal(t, "k1", s.stored(t, "orders.fifo")[0].Group)
}

// A topic takes 256 KiB in a request, unless its MaximumMessageSize says more. A larger message has a request
// without others, which such a topic takes.
func TestARequestHasTenMessagesAnd256KiB(t *testing.T) {
	var mu sync.Mutex
	var sizes []int
	s := start(t, func(_ http.ResponseWriter, form url.Values) bool {
		n := 0
		for form.Has(fmt.Sprintf("PublishBatchRequestEntries.member.%d.Id", n+1)) {
			n++
		}
		mu.Lock()
		defer mu.Unlock()
		sizes = append(sizes, n)
		return false
	})
	require.NoError(t, s.Create("large", 1<<20))
	p := publisher(t, s.url, nil)
	counted := func(arn string, i, n int) relay.Message { // a message that counts n bytes
		m := messages(arn, 1)[0]
		m.ID = fmt.Sprint(i)
		m.Body = []byte(strings.Repeat("S", n-len("message-id"+"String"+m.ID+"content-type"+"String"+m.ContentType)))
		return m
	}
	const limit = 256 << 10
	for name, tc := range map[string]struct {
		topic           string
		bytes, requests []int
	}{
		"256 KiB":             {"orders", []int{limit / 2, limit / 2}, []int{2}},
		"a byte above":        {"orders", []int{limit / 2, limit/2 + 1}, []int{1, 1}},
		"eleven":              {"orders", slices.Repeat([]int{100}, 11), []int{1, 10}},
		"a large message":     {"large", []int{100, limit + 1, 100}, []int{1, 1, 1}},
		"the largest message": {"large", []int{1 << 20}, []int{1}},
	} {
		sizes = nil
		var list []relay.Message
		for i, n := range tc.bytes {
			list = append(list, counted(snstest.Prefix+tc.topic, i, n))
		}
		require.Nil(t, p.Publish(t.Context(), list), name)
		slices.Sort(sizes)
		require.Equal(t, tc.requests, sizes, name)
	}
	errs := p.Publish(t.Context(), []relay.Message{counted(standard, 1, 100), counted(standard, 2, limit+1), counted(snstest.Prefix+"large", 3, 1<<20+1)})
	require.NoError(t, errs[0])
	isOf(t, relay.ErrRefused, errs[1])
	require.ErrorContains(t, errs[1], "BatchRequestTooLong")
	require.NotContains(t, errs[1].Error(), "SSS", "no payload")
	isOf(t, relay.ErrRefused, errs[2])
	require.ErrorContains(t, errs[2], "SNS takes 1048576 together")
}

// Each message of a request has an answer of its own.
func TestARequestThatFailsInPart(t *testing.T) {
	s := start(t, func(w http.ResponseWriter, _ url.Values) bool {
		snstest.Answer(w, []snstest.Stored{{ID: "0", MessageID: "1"}}, []snstest.Failed{
			{ID: "1", Code: "NewCode", Message: "try again"},
			{ID: "2", Code: "InvalidParameter", Message: "no", SenderFault: true},
			{ID: "3", Code: "KMSAccessDenied", Message: "no", SenderFault: true},
			{ID: "another", Code: "InternalError", Message: "no"},
		})
		return true
	})
	errs := publisher(t, s.url, nil).Publish(t.Context(), messages(standard, 5))
	require.NoError(t, errs[0])
	for i, class := range []error{relay.ErrUnavailable, relay.ErrRefused, nil, relay.ErrUnavailable} {
		isOf(t, class, errs[i+1])
	}
	require.ErrorContains(t, errs[4], "the answer does not have the message")
}

// A message that SNS refuses for its text fails alone.
func TestAMessageThatIsRefused(t *testing.T) {
	s := start(t, nil)
	list := messages(fifo, 4)
	list[0].Body = nil
	list[1].Body = []byte("S\x00")
	list[2].Attributes = []relay.Attribute{{Name: "subject", Value: "a\x02"}}
	errs := publisher(t, s.url, nil).Publish(t.Context(), list)
	for i, text := range []string{"the body is empty, which SNS does not take", "the body has the character U+0000 at byte 1, which SNS does not take", `the attribute "ce-subject" has the character U+0002`} {
		isOf(t, relay.ErrRefused, errs[i])
		require.ErrorContains(t, errs[i], text)
	}
	require.NoError(t, errs[3])
	require.Len(t, s.stored(t, "orders.fifo"), 1)
}

func TestAnswersHaveAClass(t *testing.T) {
	var status int
	var code, text string
	s := start(t, func(w http.ResponseWriter, _ url.Values) bool {
		snstest.Fail(w, status, code, text)
		return true
	})
	p := publisher(t, s.url, nil)
	for _, tc := range []struct {
		status     int
		code, text string
		class      error // nil: a failed delivery
	}{
		{404, "NotFound", "Topic does not exist", relay.ErrUnroutable},
		{400, "InvalidParameter", "Invalid parameter: TopicArn", relay.ErrUnroutable},
		{400, "InvalidParameter", "Invalid parameter: Message too long", relay.ErrRefused},
		{400, "ParameterValueInvalid", "The message attribute is not valid", relay.ErrRefused},
		{400, "ValidationException", "A parameter is not valid", relay.ErrRefused},
		{400, "BatchRequestTooLong", "The length is above the limit", relay.ErrRefused},
		{429, "Throttled", "slower", relay.ErrUnavailable},
		{400, "Throttling", "slower", relay.ErrUnavailable},
		{400, "KMSThrottling", "slower", relay.ErrUnavailable},
		{400, "KMSDisabled", "the key", relay.ErrUnavailable},
		{400, "KMSInvalidState", "the key", relay.ErrUnavailable},
		{500, "InternalError", "later", relay.ErrUnavailable},
		{503, "Whatever", strings.Repeat("x", 10_000), relay.ErrUnavailable},
		{403, "InvalidSecurity", "the signature", relay.ErrUnavailable},
		{403, "InvalidClientTokenId", "the token", relay.ErrUnavailable},
		{403, "SignatureDoesNotMatch", "the signature", relay.ErrUnavailable},
		{400, "KMSAccessDenied", "the key", nil},
		{403, "AuthorizationError", "is not authorized to perform: SNS:Publish", nil},
	} {
		status, code, text = tc.status, tc.code, tc.text
		for _, err := range p.Publish(t.Context(), messages(standard, 2)) {
			isOf(t, tc.class, err)
			require.ErrorContains(t, err, tc.text[:min(len(tc.text), 100)])
			require.Less(t, len(err.Error()), 1000, "a huge text is cut")
		}
	}
	status, code, text = 403, "AuthorizationError", "is not authorized to perform: SNS:ListTopics"
	require.NoError(t, p.Ping(t.Context()), "SNS answers an account that may not ask")
	code = "InvalidClientTokenId"
	isOf(t, relay.ErrUnavailable, p.Ping(t.Context()))
	require.Empty(t, s.stored(t, "orders"))
}

func TestAnswersThatAreNone(t *testing.T) {
	var answer func(w http.ResponseWriter)
	s := start(t, func(w http.ResponseWriter, _ url.Values) bool {
		answer(w)
		return true
	})
	p := publisher(t, s.url, nil)
	for name, with := range map[string]func(w http.ResponseWriter){
		"a page of a proxy": func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusBadGateway)
			_, _ = fmt.Fprint(w, "<html>"+strings.Repeat("x", 1<<20)+"</html>")
		},
		"no XML":         func(w http.ResponseWriter) { _, _ = fmt.Fprint(w, "<") },
		"another answer": func(w http.ResponseWriter) { _, _ = fmt.Fprint(w, "<html/>") },
		"nothing":        func(http.ResponseWriter) {},
	} {
		answer = with
		errs := p.Publish(t.Context(), messages(standard, 1))
		require.Len(t, errs, 1, name)
		isOf(t, relay.ErrUnavailable, errs[0])
		require.Less(t, len(errs[0].Error()), 2000, name)
	}
}

func TestAServerThatDoesNotAnswer(t *testing.T) {
	came, done := make(chan struct{}, 100), make(chan struct{})
	s := start(t, func(http.ResponseWriter, url.Values) bool {
		came <- struct{}{}
		<-done
		return true
	})
	defer close(done)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-came
		cancel()
	}()
	for _, err := range publisher(t, s.url, nil).Publish(ctx, messages(standard, 100)) {
		require.ErrorIs(t, err, context.Canceled)
	}
}

// The client tries a request again by itself, as its options say.
func TestTheClientRetries(t *testing.T) {
	var asked atomic.Int32
	s := start(t, func(w http.ResponseWriter, _ url.Values) bool {
		if asked.Add(1) > 1 {
			return false
		}
		snstest.Fail(w, http.StatusBadRequest, "ThrottlingException", "slower")
		return true
	})
	p := publisher(t, s.url, func(o *sns.Options) { o.Retryer = retry.NewStandard() })
	require.Nil(t, p.Publish(t.Context(), messages(standard, 1)))
	require.EqualValues(t, 2, asked.Load())
}

func TestTopicsThatDoNotExist(t *testing.T) {
	s := start(t, nil)
	list := append(messages(snstest.Prefix+"missing", 2), messages(standard, 1)...)
	list = append(list, messages("orders", 1)...)
	errs := publisher(t, s.url, nil).Publish(t.Context(), list)
	for _, err := range errs[:2] {
		isOf(t, relay.ErrUnroutable, err)
		require.ErrorContains(t, err, "NotFound: Topic does not exist")
	}
	require.NoError(t, errs[2])
	isOf(t, relay.ErrRefused, errs[3])
	require.ErrorContains(t, errs[3], "is not the ARN of a topic")
}

func TestARNsOfTopics(t *testing.T) {
	p := publisher(t, "http://127.0.0.1:1", nil)
	for _, ok := range []string{
		"arn:aws:sns:eu-west-1:123456789012:a", "arn:aws-cn:sns:cn-north-1:123456789012:A-b_1.fifo", snstest.Prefix + strings.Repeat("t", 256),
	} {
		require.NoError(t, p.CheckTopic(ok))
	}
	for bad, text := range map[string]string{
		"": "is not the ARN", "orders": "is not the ARN", "arn:aws:sqs:eu-west-1:123456789012:a": "is not the ARN", "arn:aws:sns::123456789012:a": "is not the ARN",
		"arn:aws:sns:eu-west-1:123456789012:a:5be8-subscription": "is not the ARN", snstest.Prefix: "is empty", snstest.Prefix + ".fifo": "before .fifo",
		snstest.Prefix + "a.b": `'.'`, snstest.Prefix + "é": `'é'`, snstest.Prefix + strings.Repeat("t", 257): "257 characters",
	} {
		require.ErrorContains(t, p.CheckTopic(bad), text)
	}
	_, err := relay.New(relay.Config{Publisher: p, Source: "/x", Routes: []relay.Route{relay.To("orders", outbox.EventKind{EventType: "A"})}})
	require.ErrorContains(t, err, `relay.Config.Routes[0].Topic is "orders": is not the ARN of a topic`)
}

func TestInvalidConfig(t *testing.T) {
	_, err := relaysns.New(relaysns.Config{})
	var field *outbox.FieldError
	require.ErrorAs(t, err, &field)
	require.Equal(t, "relaysns.Config.Client", field.Field)
}

func TestAServerThatIsAway(t *testing.T) {
	p := publisher(t, "http://"+relaytest.FreeAddr(t), nil)
	for _, err := range p.Publish(t.Context(), messages(standard, 2)) {
		isOf(t, relay.ErrUnavailable, err)
		require.ErrorContains(t, err, "connection refused")
		require.NotContains(t, err.Error(), "secret-key")
	}
	isOf(t, relay.ErrUnavailable, p.Ping(t.Context()))
	s := start(t, nil)
	p = publisher(t, s.url, nil)
	require.NoError(t, p.Ping(t.Context()))
	require.NoError(t, p.Close(t.Context()))
	require.NoError(t, p.Close(t.Context()), "a second time")
	isOf(t, relay.ErrUnavailable, p.Publish(t.Context(), messages(standard, 1))[0])
	isOf(t, relay.ErrUnavailable, p.Ping(t.Context()))
	require.Empty(t, s.stored(t, "orders"))
}

func TestCredentialsThatTheClientDoesNotGet(t *testing.T) {
	s := start(t, nil)
	p := publisher(t, s.url, func(o *sns.Options) {
		o.Credentials = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{}, errors.New("no role")
		})
	})
	isOf(t, relay.ErrUnavailable, p.Publish(t.Context(), messages(standard, 1))[0])
	require.ErrorContains(t, p.Ping(t.Context()), "no role")
}
