package outbox_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// Scenarios of docs/OBJECTIVE.md that no other test has as a whole.

const (
	typedAggregate outbox.AggregateType = "Order"
	typedEvent     outbox.EventType     = "OrderPlaced"
)

func TestAnEventOfTypedConstantsReachesItsListener(t *testing.T) {
	t.Parallel()
	got := make(chan outbox.Envelope, 1)
	e := build(t, outbox.Config{}, nil)
	require.NoError(t, e.Register(outbox.On(typedAggregate, typedEvent, outbox.ListenerFunc(func(_ context.Context, env outbox.Envelope) error {
		got <- env
		return nil
	}))))
	require.NoError(t, e.Start(t.Context()))
	ids := e.write(outbox.Envelope{EventType: typedEvent, AggregateType: typedAggregate, AggregateID: "o-1", Payload: outbox.RawJSON("1")})
	env := receive(t, got)
	require.Equal(t, typedEvent, env.EventType)
	require.Equal(t, "Order", string(env.AggregateType))
	row := e.await(ids[0], outbox.StatusDone)
	require.Equal(t, "Order", string(row.Envelope.AggregateType))
	require.Equal(t, "OrderPlaced", string(row.Envelope.EventType))
}

func TestAnOutboxThatOnlyWritesDeliversNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := outboxtest.NewStore()
		var c calls
		listener := func(_ context.Context, env outbox.Envelope) error {
			c.add(env.EventID)
			return nil
		}
		writer := start(t, outbox.Config{Store: store, Mode: outbox.WriterOnly{}}, listener)
		writer.write(said("a"), said("b"))
		time.Sleep(time.Hour) // of the bubble: any poller would have read the table
		st, err := writer.Stats(t.Context())
		require.NoError(t, err)
		require.Equal(t, int64(2), st.Due)
		require.Zero(t, st.LastPoll, "no poller runs")
		require.NoError(t, writer.Close(t.Context()), "which would deliver what is queued")
		require.Empty(t, c.n)
		for _, row := range store.Rows() {
			require.Equal(t, outbox.StatusNew, row.Status)
			require.Zero(t, row.Attempts)
		}

		start(t, outbox.Config{Store: store}, listener)
		time.Sleep(time.Minute)
		require.Equal(t, map[outbox.Status]int{outbox.StatusDone: 2}, statuses(store))
		require.Equal(t, map[string]int{"a": 1, "b": 1}, c.n)
	})
}
