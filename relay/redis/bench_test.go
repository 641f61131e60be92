package relayredis_test

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/outboxkit/outbox-go/internal/testing/relaytest"
	"github.com/outboxkit/outbox-go/relay"
)

// The server writes each entry to its append-only file.
func BenchmarkAgainstALoop(b *testing.B) {
	addr, _, client := start(b)
	relaytest.Compare(b, publisher(b, addr, nil), func(ctx context.Context, messages []relay.Message) error {
		pipe := client.Pipeline()
		for _, m := range messages {
			values := make([]any, 0, 2*len(m.Attributes)+4)
			for _, a := range m.Attributes {
				values = append(values, "ce-"+a.Name, a.Value)
			}
			pipe.XAdd(ctx, &redis.XAddArgs{Stream: m.Topic, Values: append(values, "message-id", m.ID, "data", m.Body)})
		}
		_, err := pipe.Exec(ctx)
		return err
	})
}
