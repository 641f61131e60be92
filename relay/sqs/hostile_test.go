package relaysqs_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/sqstest"
	"github.com/outboxkit/outbox-go/relay"
)

// failing answers each request with an error of the service.
func failing(action string, status int, code string) func(http.Handler) http.Handler {
	return intercept(action, func(w http.ResponseWriter, _ string) bool {
		sqstest.Fail(w, status, code, "because "+strings.Repeat("x", 10_000))
		return true
	})
}

func TestAnswersHaveAClass(t *testing.T) {
	for _, tc := range []struct {
		status int
		code   string
		class  error // nil: a failed delivery
	}{
		{400, "ThrottlingException", relay.ErrUnavailable},
		{400, "RequestThrottled", relay.ErrUnavailable},
		{429, "Whatever", relay.ErrUnavailable},
		{503, "ServiceUnavailable", relay.ErrUnavailable},
		{500, "Whatever", relay.ErrUnavailable},
		{403, "ExpiredTokenException", relay.ErrUnavailable},
		{403, "SignatureDoesNotMatch", relay.ErrUnavailable},
		{400, "UnrecognizedClientException", relay.ErrUnavailable},
		{400, "KmsDisabled", relay.ErrUnavailable},
		{400, "KmsThrottled", relay.ErrUnavailable},
		{400, "KmsAccessDenied", nil},
		{403, "AccessDeniedException", nil},
		{400, "UnsupportedOperation", nil},
		{400, "QueueDoesNotExist", relay.ErrUnroutable},
		{400, "InvalidMessageContents", relay.ErrRefused},
	} {
		for _, action := range []string{"SendMessageBatch", "GetQueueUrl"} {
			s := start(t, failing(action, tc.status, tc.code))
			for _, err := range publisher(t, s.url, nil).Publish(t.Context(), messages("orders", 3)) {
				isOf(t, tc.class, err)
				require.ErrorContains(t, err, "because xxx")
				require.Less(t, len(err.Error()), 1000, "a huge text is cut")
			}
			require.Empty(t, s.stored(t, "orders"))
		}
	}
}

func TestPingOfAnAccountThatMayNotAsk(t *testing.T) {
	require.NoError(t, publisher(t, start(t, failing("ListQueues", 403, "AccessDeniedException")).url, nil).Ping(t.Context()))
	isOf(t, relay.ErrUnavailable, publisher(t, start(t, failing("ListQueues", 403, "InvalidClientTokenId")).url, nil).Ping(t.Context()))
}

// Each message of a request has an answer of its own.
func TestARequestThatFailsInPart(t *testing.T) {
	s := start(t, intercept("SendMessageBatch", func(w http.ResponseWriter, _ string) bool {
		text, err := json.Marshal(map[string]any{
			"Successful": []map[string]string{{"Id": "0", "MessageId": "1", "MD5OfMessageBody": "c4ca4238a0b923820dcc509a6f75849b"}},
			"Failed": []sqstest.Failed{
				{ID: "1", Code: "NewCode", Message: "try again"},
				{ID: "2", Code: "InvalidMessageContents", Message: "no", SenderFault: true},
				{ID: "3", Code: "KmsAccessDenied", Message: "no", SenderFault: true},
				{ID: "4", Code: "AWS.SimpleQueueService.NonExistentQueue", Message: "no", SenderFault: true},
				{ID: "another", Code: "InternalError", Message: "no"},
			},
		})
		if err != nil {
			panic(err)
		}
		w.Header().Set("Content-Type", "application/x-amz-json-1.0")
		_, _ = w.Write(text)
		return true
	}))
	errs := publisher(t, s.url, nil).Publish(t.Context(), messages("orders", 6))
	require.NoError(t, errs[0])
	for i, class := range []error{relay.ErrUnavailable, relay.ErrRefused, nil, relay.ErrUnroutable, relay.ErrUnavailable} {
		require.Error(t, errs[i+1])
		isOf(t, class, errs[i+1])
	}
	require.ErrorContains(t, errs[5], "the answer does not have the message")
}

// A queue that is away gets no further request of the call, and other queues get theirs.
func TestAQueueThatIsAwayIsAskedOnce(t *testing.T) {
	var asked atomic.Int32
	s := start(t, intercept("SendMessageBatch", func(w http.ResponseWriter, body string) bool {
		if strings.Contains(body, ".fifo") {
			return false
		}
		asked.Add(1)
		sqstest.Fail(w, http.StatusServiceUnavailable, "ServiceUnavailable", "later")
		return true
	}))
	list := append(messages("orders", 500), messages("orders.fifo", 20)...)
	errs := publisher(t, s.url, nil).Publish(t.Context(), list)
	for i, err := range errs {
		if i < 500 {
			isOf(t, relay.ErrUnavailable, err)
		} else {
			require.NoError(t, err)
		}
	}
	require.LessOrEqual(t, asked.Load(), int32(5), "the requests that ran at a time")
}

// The message is stored, and its acknowledgement is lost.
func TestAConnectionThatEndsAfterTheRequestWasAccepted(t *testing.T) {
	var s *server
	s = start(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-Amz-Target") != "AmazonSQS.SendMessageBatch" || len(s.stored(t, "orders.fifo")) > 0 {
				next.ServeHTTP(w, r)
				return
			}
			next.ServeHTTP(nothing{}, r)
			panic(http.ErrAbortHandler) // closes the connection
		})
	})
	p := publisher(t, s.url, nil)
	for _, err := range p.Publish(t.Context(), messages("orders.fifo", 3)) {
		isOf(t, relay.ErrUnavailable, err)
	}
	require.Nil(t, p.Publish(t.Context(), messages("orders.fifo", 3)), "the queue has them")
	require.Equal(t, []string{"1", "2", "3"}, s.bodies(t, "orders.fifo"))
}

// nothing takes an answer that no client gets.
type nothing struct{}

func (nothing) Header() http.Header            { return http.Header{} }
func (nothing) Write(text []byte) (int, error) { return len(text), nil }
func (nothing) WriteHeader(int)                {}

func TestAServerThatDoesNotAnswer(t *testing.T) {
	came, done := make(chan struct{}, 100), make(chan struct{})
	s := start(t, intercept("SendMessageBatch", func(http.ResponseWriter, string) bool {
		came <- struct{}{}
		<-done
		return true
	}))
	defer close(done)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-came
		cancel()
	}()
	for _, err := range publisher(t, s.url, nil).Publish(ctx, messages("orders", 100)) {
		require.ErrorIs(t, err, context.Canceled)
	}
}

func TestAnswersThatAreNone(t *testing.T) {
	for name, answer := range map[string]func(w http.ResponseWriter){
		"a page of a proxy": func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusBadGateway)
			_, _ = fmt.Fprint(w, "<html>"+strings.Repeat("x", 1<<20)+"</html>")
		},
		"no JSON": func(w http.ResponseWriter) { _, _ = fmt.Fprint(w, "{") },
		"nothing": func(http.ResponseWriter) {},
		"another body": func(w http.ResponseWriter) {
			_, _ = fmt.Fprint(w, `{"Successful": [{"Id": "0", "MessageId": "1", "MD5OfMessageBody": "00"}]}`)
		},
	} {
		s := start(t, intercept("SendMessageBatch", func(w http.ResponseWriter, _ string) bool {
			answer(w)
			return true
		}))
		errs := publisher(t, s.url, nil).Publish(t.Context(), messages("orders", 1))
		require.Len(t, errs, 1, name)
		isOf(t, relay.ErrUnavailable, errs[0])
		require.Less(t, len(errs[0].Error()), 2000, name)
	}
}

// The client tries a request again by itself, as its options say.
func TestTheClientRetries(t *testing.T) {
	var asked atomic.Int32
	s := start(t, intercept("SendMessageBatch", func(w http.ResponseWriter, _ string) bool {
		if asked.Add(1) == 1 {
			sqstest.Fail(w, http.StatusBadRequest, "ThrottlingException", "slower")
			return true
		}
		return false
	}))
	p := publisher(t, s.url, func(o *sqs.Options) { o.Retryer = retry.NewStandard() })
	require.Nil(t, p.Publish(t.Context(), messages("orders", 1)))
	require.EqualValues(t, 2, asked.Load())
}
