package relayrabbitmq_test

import (
	"context"
	"fmt"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/relaytest"
	"github.com/outboxkit/outbox-go/relay"
	relayrabbitmq "github.com/outboxkit/outbox-go/relay/rabbitmq"
)

func BenchmarkAgainstALoop(b *testing.B) {
	s := start(b)
	s.declare(b, "bench", "bench", "#", nil)
	ch := s.open(b)
	require.NoError(b, ch.Confirm(false))
	p := publisher(b, relayrabbitmq.Config{URLs: []string{s.url()}, Exchange: "bench"})
	relaytest.Compare(b, p, func(_ context.Context, messages []relay.Message) error {
		confirms := make([]*amqp.DeferredConfirmation, len(messages))
		for i, m := range messages {
			headers := amqp.Table{}
			for _, a := range m.Attributes {
				headers["cloudEvents_"+a.Name] = a.Value
			}
			var err error
			confirms[i], err = ch.PublishWithDeferredConfirm("bench", m.Topic, true, false, amqp.Publishing{
				MessageId: m.ID, ContentType: m.ContentType, DeliveryMode: amqp.Persistent, Headers: headers, Body: m.Body,
			})
			if err != nil {
				return err
			}
		}
		for _, confirm := range confirms {
			if !confirm.Wait() {
				return fmt.Errorf("message %d is not confirmed", confirm.DeliveryTag)
			}
		}
		return nil
	})
}
