package webhook_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	webhook "github.com/outboxkit/outbox-go/docs/code/write-a-publisher"
	"github.com/outboxkit/outbox-go/relay"
)

func TestAMessageIsPosted(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.Header.Get("Idempotency-Key") != "e1" || r.Header.Get("ce-source") != "/orders" || string(body) != `{"total":3}` {
			w.WriteHeader(http.StatusTeapot)
		}
	}))
	t.Cleanup(server.Close)
	p := webhook.New(server.URL)
	require.Nil(t, p.Publish(t.Context(), []relay.Message{{
		Topic: "orders", ID: "e1", ContentType: "application/json", Body: []byte(`{"total":3}`),
		Attributes: []relay.Attribute{{Name: "source", Value: "/orders"}},
	}}))
	require.NoError(t, p.Ping(t.Context()))
	require.NoError(t, p.Close(t.Context()))
}

func TestEachAnswerHasItsClass(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(map[string]int{"/ok": 204, "/none": 404, "/away": 503, "/large": 413, "/denied": 403}[r.URL.Path])
	}))
	p := webhook.New(server.URL)
	topics := []string{"ok", "none", "away", "large", "denied"}
	var messages []relay.Message
	for _, topic := range topics {
		messages = append(messages, relay.Message{Topic: topic, ID: topic})
	}
	errs := p.Publish(t.Context(), messages)
	require.Len(t, errs, len(topics))
	for i, class := range []error{nil, relay.ErrUnroutable, relay.ErrUnavailable, relay.ErrRefused} {
		require.ErrorIs(t, errs[i], class, topics[i])
	}
	require.EqualError(t, errs[4], "the endpoint answered 403")

	server.Close()
	require.ErrorIs(t, p.Publish(t.Context(), messages[:1])[0], relay.ErrUnavailable)
	require.ErrorIs(t, p.Ping(t.Context()), relay.ErrUnavailable)
	require.ErrorContains(t, p.CheckTopic(strings.Repeat("x", 101)), "takes 100")
	require.NoError(t, p.CheckTopic("orders"))
}
