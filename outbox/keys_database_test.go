package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// A key at a delivery an hour: one event is delivered, and the others are due an hour after each other,
// to the microsecond. A key whose receiver is down waits, and is delivered when the receiver is back.
func TestEventsWaitForTheirKeysOnDatabases(t *testing.T) {
	t.Parallel()
	testdb.Each(t, adaptertest.Main(), func(t *testing.T, db *testdb.DB) {
		ctx := t.Context()
		store, err := sqlstore.Detect(ctx, db.DB)
		require.NoError(t, err)
		require.NoError(t, store.CreateSchema(ctx, db.DB))
		bounded := outbox.EventKind{AggregateType: "Order", EventType: "Paid"}
		ob, err := outbox.New(outbox.Config{DB: db.DB, Store: store, Logger: quiet, Mode: outbox.MultiNode{
			Poll:     outbox.PollOptions{Interval: 50 * time.Millisecond},
			Dispatch: outbox.DispatchOptions{Rules: map[outbox.EventKind]outbox.Rules{bounded: {KeyRate: 1. / 3600}}},
		}})
		require.NoError(t, err)
		var delivered calls
		var down atomic.Bool
		down.Store(true)
		require.NoError(t, ob.Register(
			outbox.On("Order", "Paid", outbox.ListenerFunc(func(_ context.Context, env outbox.Envelope) error {
				delivered.add(env.AggregateID)
				return nil
			})),
			outbox.On("Order", "Sent", outbox.ListenerFunc(func(_ context.Context, env outbox.Envelope) error {
				if env.AggregateID == "down" && down.Load() {
					return outbox.PauseKeyFor(time.Second, errors.New("receiver down"))
				}
				delivered.add(env.AggregateID)
				return nil
			})),
		))
		require.NoError(t, ob.Start(ctx))
		closeAfter(t, ob)
		a := adaptertest.Adapter(t, db.DB, ob.Writer())
		write := func(kind outbox.EventType, key string) {
			require.NoError(t, a.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
				_, err := a.Write(ctx, tx, outbox.Envelope{AggregateType: "Order", AggregateID: key, EventType: kind, Payload: outbox.JSON(1)})
				return err
			}))
		}
		for range 10 {
			write("Paid", "busy")
			write("Sent", "down")
		}
		write("Paid", "quiet")
		rows := func(filter outbox.EventFilter) []outbox.EventRow {
			page, err := ob.FindEvents(ctx, outbox.EventQuery{EventFilter: filter})
			require.NoError(t, err)
			return page.Rows
		}
		waiting := func(key, why string) (n int) {
			for _, row := range rows(outbox.EventFilter{AggregateID: key, Statuses: []outbox.Status{outbox.StatusNew}}) {
				if row.LastError == why {
					n++
				}
			}
			return n
		}
		require.Eventually(t, func() bool { return waiting("busy", "waits for the rate of its key") == 9 }, time.Minute, 5*time.Millisecond)
		require.Eventually(t, func() bool {
			return waiting("down", "receiver down")+waiting("down", "the key is paused: receiver down")+waiting("down", "waits for the first delivery of the key after a pause") == 10
		}, time.Minute, 5*time.Millisecond)
		list := rows(outbox.EventFilter{AggregateID: "busy", Statuses: []outbox.Status{outbox.StatusNew}})
		for i, row := range list[1:] {
			require.Equal(t, time.Hour, row.AvailableAt.Sub(list[i].AvailableAt), fmt.Sprint("slot ", i+1))
		}
		down.Store(false)
		require.Eventually(t, func() bool { return delivered.of("down") == 10 }, time.Minute, 5*time.Millisecond)
		require.Equal(t, 1, delivered.of("quiet"))
		require.Equal(t, 1, delivered.of("busy"))
		require.NoError(t, ob.Close(context.Background()))
		for _, row := range rows(outbox.EventFilter{}) {
			require.Zero(t, row.Attempts)
		}
	})
}
