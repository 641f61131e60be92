package main

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/relaytest"
	"github.com/outboxkit/outbox-go/outbox"
)

// A slot that the reader made at the current position would leave out an event without a
// word. This is the recovery that docs/how-to/change-data-capture.md describes.
func TestNoEventIsLostWhenTheSlotIsGone(t *testing.T) {
	s := newShop(t)
	require.ErrorContains(t, s.reader().CreateSlot(t.Context()), "already exists")
	stop := s.read()
	s.ready()
	s.commit("a", "1")
	s.published(1)
	_ = stop()
	s.free()
	require.Equal(t, 1, s.ask("SELECT count(pg_drop_replication_slot('cdc') IS NULL)"))
	s.commit("a", "2")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	require.ErrorIs(t, follow(ctx, s.reader()), ErrNoSlot, "it does not begin after the event")
	require.Zero(t, s.ask("SELECT count(*) FROM pg_replication_slots"))

	require.NoError(t, s.reader().CreateSlot(t.Context()))
	s.commit("a", "3") // both the slot and the table have it
	ob, err := outbox.New(outbox.Config{DB: s.db, Store: s.store, Mode: outbox.Ordered{}, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	require.NoError(t, ob.Register(s.relay.Bindings()...))
	require.NoError(t, ob.Start(t.Context()))
	relaytest.Eventually(t, "the rows of the table are published", func() bool { return s.ask("SELECT count(*) FROM outbox_event WHERE status <> 1") == 0 })
	require.NoError(t, ob.Close(t.Context()))
	s.read()
	s.ready()
	s.commit("a", "4")
	relaytest.Eventually(t, "the last event is published", func() bool { return slices.Contains(s.broker.ids(), "4") })
	require.Equal(t, []string{"1", "1", "2", "3", "3", "4"}, s.broker.ids())
}

func TestAPanicOfPublishHoldsUpTheReader(t *testing.T) {
	s := newShop(t)
	var panics atomic.Int32
	r := s.reader()
	r.Publish = func(ctx context.Context, batch []outbox.Envelope) []error {
		if panics.Add(1) == 1 {
			panic("no topic")
		}
		return s.relay.Publish(ctx, batch)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	s.ready()
	s.commit("a", "1", "2")
	s.published(2)
	require.Equal(t, []string{"1", "2"}, s.broker.ids())
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
}
