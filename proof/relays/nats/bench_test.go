package relaynats_test

import (
	"context"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outboxkit/outbox-go/internal/testing/relaytest"
	"github.com/outboxkit/outbox-go/relay"
	relaynats "github.com/outboxkit/outbox-go/relay/nats"
)

// The server is another process, and its stream is a file.
func BenchmarkAgainstALoop(b *testing.B) {
	addr, _ := process(b)
	js := client(b, "nats://"+addr)
	stream(b, js, jetstream.StreamConfig{Subjects: []string{relaytest.Topic}})
	relaytest.Compare(b, publisher(b, relaynats.Config{URL: addr}), func(_ context.Context, messages []relay.Message) error {
		futures := make([]jetstream.PubAckFuture, len(messages))
		for i, m := range messages {
			msg := nats.NewMsg(m.Topic)
			msg.Data = m.Body
			for _, a := range m.Attributes {
				msg.Header["ce-"+a.Name] = []string{a.Value}
			}
			var err error
			if futures[i], err = js.PublishMsgAsync(msg, jetstream.WithMsgID(m.ID)); err != nil {
				return err
			}
		}
		for _, future := range futures {
			select {
			case <-future.Ok():
			case err := <-future.Err():
				return err
			}
		}
		return nil
	})
}
