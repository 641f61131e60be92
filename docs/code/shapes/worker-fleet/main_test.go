package main

import (
	"context"
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/docs/code/shapes/service"
	"github.com/outboxkit/outbox-go/docs/code/shapes/service/servicetest"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

func TestEachGroupDeliversItsKinds(t *testing.T) {
	t.Parallel()
	db := servicetest.Open(t)
	writer, err := outbox.New(outbox.Config{DB: db.DB, Store: sqlstore.Postgres(), Mode: outbox.WriterOnly{}})
	require.NoError(t, err)
	a, err := sqltx.New(db.DB, writer.Writer())
	require.NoError(t, err)
	require.NoError(t, a.RunInTx(t.Context(), nil, func(ctx context.Context, tx *sql.Tx) error {
		for _, topic := range []outbox.Topic[service.Order]{service.OrderPlaced, orderShipped} {
			if _, err := a.Write(ctx, tx, topic.Envelope("o-1", service.Order{ID: "o-1"})); err != nil {
				return err
			}
		}
		return nil
	}))
	require.NoError(t, writer.Close(t.Context()))
	servicetest.Start(t, func(ctx context.Context) error { return mail(ctx, db.DB) })
	servicetest.Delivered(t, db.DB, 1)
	servicetest.Counts(t, db.DB, "outbox_event WHERE status = 0 AND event_type = 'OrderShipped'", 1)
	servicetest.Start(t, func(ctx context.Context) error { return shipping(ctx, db.DB) })
	servicetest.Start(t, func(ctx context.Context) error { return shipping(ctx, db.DB) })
	servicetest.Delivered(t, db.DB, 2)
}
