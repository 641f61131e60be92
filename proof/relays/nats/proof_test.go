package relaynats_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/relaytest"
	"github.com/outboxkit/outbox-go/relay"
	relaynats "github.com/outboxkit/outbox-go/relay/nats"
)

func TestNothingIsLostWhileTheServerIsKilled(t *testing.T) { relaytest.Prove(t, broker(t)) }

func TestTheRelayCatchesUpAfterAnOutage(t *testing.T) { relaytest.Outage(t, broker(t)) }

// broker is a server that can be killed, with a stream.
func broker(t *testing.T) relaytest.Broker {
	t.Helper()
	addr, server := process(t)
	js := client(t, "nats://"+addr, nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond))
	stream(t, js, jetstream.StreamConfig{Subjects: []string{relaytest.Topic}})
	return relaytest.Broker{
		Addr: addr,
		Connect: func(t testing.TB, addr string) relay.Publisher {
			return publisher(t, relaynats.Config{URL: addr, Options: []nats.Option{nats.ReconnectWait(50 * time.Millisecond)}})
		},
		Server:       server,
		Stored:       func(t testing.TB) []relaytest.Stored { return stored(t, js) },
		Deduplicates: true,
	}
}

// stored reads the stream.
func stored(t testing.TB, js jetstream.JetStream) (all []relaytest.Stored) {
	t.Helper()
	var info *jetstream.StreamInfo
	relaytest.Eventually(t, "the stream answers", func() bool {
		st, err := js.Stream(t.Context(), "TEST")
		if err != nil {
			return false
		}
		info = st.CachedInfo()
		return true
	})
	consumer, err := js.OrderedConsumer(t.Context(), "TEST", jetstream.OrderedConsumerConfig{})
	require.NoError(t, err)
	list, err := consumer.Messages()
	require.NoError(t, err)
	defer list.Stop()
	for len(all) < int(info.State.Msgs) {
		m, err := list.Next(jetstream.NextMaxWait(time.Minute))
		require.NoError(t, err)
		all = append(all, relaytest.Stored{ID: m.Headers().Get(jetstream.MsgIDHeader), Body: m.Data()})
	}
	return all
}
