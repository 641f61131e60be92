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
)

func TestAnEventOfOneDatabaseTakesEffectInTheOther(t *testing.T) {
	t.Parallel()
	orders, stock := servicetest.Open(t), servicetest.Open(t)
	writer, err := outbox.New(outbox.Config{DB: orders.DB, Store: sqlstore.Postgres(), Mode: outbox.WriterOnly{}})
	require.NoError(t, err)
	a, err := sqltx.New(orders.DB, writer.Writer())
	require.NoError(t, err)
	require.NoError(t, service.Place(t.Context(), a, service.Order{ID: "o-1", Item: "tea"}))
	require.NoError(t, writer.Close(t.Context()))
	servicetest.Start(t, func(ctx context.Context) error { return run(ctx, orders.DB, stock.DB) })
	servicetest.Delivered(t, orders.DB, 1)
	servicetest.Delivered(t, stock.DB, 1)
	// A second delivery, as after a crash, has no second effect.
	_, err = orders.ExecContext(t.Context(), "UPDATE outbox_event SET status = 0")
	require.NoError(t, err)
	servicetest.Delivered(t, orders.DB, 1)
	servicetest.Counts(t, stock.DB, "orders", 1)
	servicetest.Counts(t, stock.DB, "outbox_event", 1)
}
