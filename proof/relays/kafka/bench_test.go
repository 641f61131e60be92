package relaykafka_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outboxkit/outbox-go/internal/testing/relaytest"
	"github.com/outboxkit/outbox-go/relay"
)

// The broker is kfake, in the same process.
func BenchmarkAgainstALoop(b *testing.B) {
	c := start(b, kfake.SeedTopics(4, relaytest.Topic))
	client, err := kgo.NewClient(kgo.SeedBrokers(c.addr))
	require.NoError(b, err)
	defer client.Close()
	relaytest.Compare(b, publisher(b, c), func(ctx context.Context, messages []relay.Message) error {
		records := make([]*kgo.Record, len(messages))
		for i, m := range messages {
			r := &kgo.Record{Topic: m.Topic, Key: []byte(m.Key), Value: m.Body}
			for _, a := range m.Attributes {
				r.Headers = append(r.Headers, kgo.RecordHeader{Key: "ce_" + a.Name, Value: []byte(a.Value)})
			}
			records[i] = r
		}
		return client.ProduceSync(ctx, records...).FirstErr()
	})
}
