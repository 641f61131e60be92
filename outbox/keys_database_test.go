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

// An open transaction has changed an event of a paused key when the key is resumed. The other events of the
// key come, and the deliveries and the writes of other keys do not wait for the transaction. The event
// comes when the transaction was rolled back.
func TestAKeyIsResumedBesideAnOpenTransaction(t *testing.T) {
	t.Parallel()
	testdb.Each(t, adaptertest.Main(), func(t *testing.T, db *testdb.DB) {
		ctx := t.Context()
		store, err := sqlstore.Detect(ctx, db.DB, sqlstore.WithKeyIndex())
		require.NoError(t, err)
		if store.Dialect() == "sqlite" {
			return // one transaction at a time writes
		}
		require.NoError(t, store.CreateSchema(ctx, db.DB))
		kind := outbox.EventKind{AggregateType: "Endpoint", EventType: "Webhook"}
		var up atomic.Bool
		var delivered calls
		pool := db.Reopen(t).DB
		ob, err := outbox.New(outbox.Config{DB: db.DB, Store: store, Logger: quiet, Mode: outbox.MultiNode{Poll: outbox.PollOptions{Interval: 50 * time.Millisecond}}})
		require.NoError(t, err)
		require.NoError(t, ob.Register(outbox.On(kind.AggregateType, kind.EventType, outbox.ListenerFunc(func(_ context.Context, env outbox.Envelope) error {
			if !up.Load() {
				return outbox.PauseKeyFor(time.Hour, errReceiverDown)
			}
			delivered.add(env.EventID)
			return nil
		}))))
		require.NoError(t, ob.Start(ctx))
		closeAfter(t, ob)
		operator, err := outbox.New(outbox.Config{DB: pool, Store: store, Logger: quiet, Mode: outbox.WriterOnly{}})
		require.NoError(t, err)
		writer := adaptertest.Adapter(t, pool, operator.Writer())
		write := func(key, id string) {
			env := outbox.Envelope{EventID: id, AggregateType: kind.AggregateType, AggregateID: key, EventType: kind.EventType, Payload: outbox.JSON(id)}
			require.NoError(t, writer.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
				_, err := writer.Write(ctx, tx, env)
				return err
			}))
		}
		eventually := func(what string, condition func() bool) {
			t.Helper()
			require.Eventually(t, condition, time.Minute, 5*time.Millisecond, what)
		}
		write("7", "first")
		write("7", "second")
		eventually("the pause is in the table", func() bool {
			list, err := operator.Paused(ctx)
			return err == nil && len(list) == 1
		})
		eventually("the events wait", func() (waits bool) {
			n := 0
			_ = db.QueryRowContext(ctx, "SELECT COUNT(*) FROM outbox_event WHERE last_error IS NOT NULL AND status = 0 AND locked_by IS NULL").Scan(&n)
			return n == 2
		})
		up.Store(true)
		tx, err := pool.BeginTx(ctx, nil)
		require.NoError(t, err)
		defer tx.Rollback()
		n, err := operator.Writer().ChangeUnmanaged(ctx, tx, outbox.Waiting{EventIDs: []string{"second"}}, outbox.Change{AvailableAt: time.Now().Add(2 * time.Hour)})
		require.NoError(t, err)
		require.Equal(t, 1, n.Changed)
		require.ErrorContains(t, operator.ResumeKey(ctx, kind, "7"), "open transactions have locked some of the events")
		eventually("the free event comes", func() bool { return delivered.of("first") == 1 })
		for i := range 5 {
			write("8", fmt.Sprint("other", i))
			eventually("events of other keys come", func() bool { return delivered.of(fmt.Sprint("other", i)) == 1 })
		}
		require.Zero(t, delivered.of("second"))
		require.NoError(t, tx.Rollback())
		eventually("the other event comes", func() bool { return delivered.of("second") == 1 })
	})
}
