package main

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/docs/code/shapes/service"
	"github.com/outboxkit/outbox-go/docs/code/shapes/service/servicetest"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
	"github.com/outboxkit/outbox-go/relay"
)

type broker chan relay.Message

func (b broker) Publish(_ context.Context, messages []relay.Message) []error {
	for _, m := range messages {
		b <- m
	}
	return make([]error, len(messages))
}

func (broker) Ping(context.Context) error { return nil }

func (broker) Close(context.Context) error { return nil }

func TestEventsGoToTheBroker(t *testing.T) {
	t.Parallel()
	db := servicetest.Open(t)
	writer, err := outbox.New(outbox.Config{DB: db.DB, Store: sqlstore.Postgres(), Mode: outbox.WriterOnly{}})
	require.NoError(t, err)
	a, err := sqltx.New(db.DB, writer.Writer())
	require.NoError(t, err)
	require.NoError(t, service.Place(t.Context(), a, service.Order{ID: "o-1", Item: "tea"}))
	require.NoError(t, writer.Close(t.Context()))
	b := make(broker, 10)
	servicetest.Start(t, func(ctx context.Context) error { return publish(ctx, db.DB, b) })
	m := <-b
	require.Equal(t, "orders.placed", m.Topic)
	require.Equal(t, "o-1", m.Key)
	servicetest.Counts(t, db.DB, "outbox_event", 0)
}
