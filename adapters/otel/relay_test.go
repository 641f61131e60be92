package outboxotel_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"

	"github.com/outboxkit/outbox-go/adapters/otel"
	"github.com/outboxkit/outbox-go/relay"
)

func newRelayMetrics(t *testing.T, p *meters, opts ...outboxotel.MetricsOption) *outboxotel.RelayMetrics {
	t.Helper()
	m, err := outboxotel.NewRelayMetrics(append(opts, outboxotel.WithMeterProvider(p))...)
	require.NoError(t, err)
	return m
}

func TestARelaysFiguresHaveTheirTopic(t *testing.T) {
	t.Parallel()
	p := newMeters(t)
	m := newRelayMetrics(t, p, outboxotel.WithAttributes(attribute.String("relay", "a")))
	require.Equal(t, map[string][]figure{"outbox.relay.outage": {{"", 0, "relay=a"}}}, p.read(t))
	m.Publishing("orders", 20)
	m.Outage(true)
	m.Published(relay.Published{Topic: "orders", Acknowledged: 1, Unavailable: 2, Refused: 3, Unroutable: 4, Failed: 5, Duration: 2 * time.Second})
	const labels = "messaging.destination.name=orders,relay=a"
	require.Equal(t, map[string][]figure{
		"outbox.relay.acknowledged":     {{"{event}", 1, labels}},
		"outbox.relay.unavailable":      {{"{event}", 2, labels}},
		"outbox.relay.refused":          {{"{event}", 3, labels}},
		"outbox.relay.unroutable":       {{"{event}", 4, labels}},
		"outbox.relay.failed":           {{"{event}", 5, labels}},
		"outbox.relay.in.flight":        {{"{event}", 5, labels}},
		"outbox.relay.publish.duration": {{"s", 2, labels}},
		"outbox.relay.outage":           {{"", 1, "relay=a"}},
	}, p.read(t))
	require.NoError(t, m.Close())
	require.Equal(t, []figure{{"", 0, "relay=a"}}, p.read(t)["outbox.relay.outage"])
}

func TestTopicsBeyondTheLimitCountTogether(t *testing.T) {
	t.Parallel()
	p := newMeters(t)
	m := newRelayMetrics(t, p)
	for i := range 103 {
		m.Published(relay.Published{Topic: fmt.Sprint("topic-", i), Acknowledged: 1})
	}
	require.Contains(t, p.read(t)["outbox.relay.acknowledged"], figure{"{event}", 3, "messaging.destination.name=_OTHER"})
}

func TestARelaysPrefixThatIsInvalid(t *testing.T) {
	t.Parallel()
	_, err := outboxotel.NewRelayMetrics(outboxotel.WithMeterProvider(newMeters(t)), outboxotel.WithPrefix("1"))
	require.ErrorContains(t, err, "making the instrument 1.relay.acknowledged")
}
