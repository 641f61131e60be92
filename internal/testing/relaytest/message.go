package relaytest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/relay"
)

// Secret is in the payload of a [Message]. No error may contain Secret.
const Secret = "s3cr3t-payload"

// Message is a message as the relay makes it, with two attributes and a header.
func Message(topic, key, id string) relay.Message {
	return relay.Message{
		Topic: topic, Key: key, ID: id, Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), ContentType: "application/json",
		Attributes: []relay.Attribute{{Name: "id", Value: id}, {Name: "datacontenttype", Value: "application/json"}},
		Headers:    map[string]string{"traceparent": "00-1"}, Body: []byte(`"` + Secret + `"`),
	}
}

// Publish publishes messages within 30 s, and returns an error for each message.
func Publish(t testing.TB, p relay.Publisher, messages ...relay.Message) []error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	errs := p.Publish(ctx, messages)
	if errs == nil {
		return make([]error, len(messages))
	}
	require.Len(t, errs, len(messages))
	for _, err := range errs {
		if err != nil {
			require.NotContains(t, err.Error(), Secret)
		}
	}
	return errs
}
