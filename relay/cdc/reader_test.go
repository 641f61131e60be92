package cdc_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/relaytest"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/relay"
	"github.com/outboxkit/outbox-go/relay/cdc"
)

func TestEventsArePublishedInTheOrderOfTheirCommits(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	stop := s.read(nil)
	s.ready()
	first, undone := s.begin(), s.begin()
	require.NoError(t, s.write(first, "a", "1", "2"))
	require.NoError(t, s.write(undone, "a", "never"))
	s.commit("a", "3")
	require.NoError(t, undone.Rollback())
	require.NoError(t, first.Commit())
	s.commit("b", "4")
	s.published(4)
	require.Equal(t, []string{"3", "1", "2"}, slices.DeleteFunc(s.broker.IDs(), func(id string) bool { return id == "4" }), "of one key")
	m := s.broker.Message("1")
	require.Equal(t, []string{"orders", "a", "0", "00-1"}, []string{m.Topic, m.Key, string(m.Body), m.Headers["traceparent"]})
	require.False(t, m.Time.IsZero())
	require.Contains(t, m.Attributes, relay.Attribute{Name: "type", Value: "Placed"})
	require.NoError(t, stop())
}

func TestAReaderBeginsAgainAtItsConfirmedPosition(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	stop := s.read(nil)
	s.ready()
	s.commit("a", "1", "2")
	s.published(2)
	relaytest.Eventually(t, "the position is confirmed", func() bool {
		return s.ask("SELECT count(*) FROM pg_replication_slots WHERE confirmed_flush_lsn >= pg_current_wal_lsn()") == 1
	})
	require.NoError(t, stop())
	s.free()
	s.commit("a", "3", "4") // while no reader is there
	s.read(nil)
	s.published(4)
	require.Equal(t, []string{"1", "2", "3", "4"}, s.broker.IDs())
}

func TestNothingIsLostWhileTheBrokerIsAway(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.broker.SetAway(true)
	stop := s.read(nil)
	s.ready()
	var want []string
	for i := range 1200 { // more than two batches
		want = append(want, fmt.Sprintf("%04d", i))
	}
	s.commit("a", want[0])
	relaytest.Eventually(t, "the reader has tried, and tries again", func() bool { return s.broker.Refused() > 1 })
	s.commit("a", want[1:700]...)
	s.commit("a", want[700:]...)
	require.NoError(t, stop()) // the reader dies with events in hand
	s.free()
	s.read(nil)
	s.ready()
	require.Empty(t, s.broker.IDs())
	s.broker.SetAway(false)
	s.published(len(want))
	require.Equal(t, want, s.broker.IDs())
}

func TestNothingIsLostWhenTheDatabaseIsKilled(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	stop := s.read(nil)
	s.ready()
	var want []string
	for i := range 300 {
		want = append(want, fmt.Sprintf("%04d", i))
		s.commit("a", want[i])
		if i == 100 || i == 200 {
			s.server.Restart(t)
			relaytest.Eventually(t, "the pool connects again", func() bool { return s.db.PingContext(t.Context()) == nil })
		}
	}
	relaytest.Eventually(t, "the last event is published", func() bool { return slices.Contains(s.broker.IDs(), want[299]) })
	require.NoError(t, stop())
	seen := map[string]bool{}
	require.Equal(t, want, slices.DeleteFunc(s.broker.IDs(), func(id string) bool {
		again := seen[id]
		seen[id] = true
		return again
	}))
}

// Neither an event that the broker refuses nor one without a route is overtaken, and what
// was published before it is not published again.
func TestAnEventThatIsRefusedHoldsUpTheReader(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.broker.Refuse("3")
	s.read(nil)
	s.ready()
	s.commit("a", "1", "2")
	s.commit("a", "3", "4")
	s.commit("b", "5")
	relaytest.Eventually(t, "it is refused three times", func() bool { return s.broker.Refused() >= 3 })
	s.commit("b", "6")
	require.Subset(t, []string{"1", "2", "5"}, s.broker.IDs())
	require.Equal(t, 1, s.ask("SELECT count(*) FROM pg_replication_slots WHERE active"), "the reader is still there")
	s.broker.Refuse("")
	s.published(6)
	s.commit("b", "7")
	s.published(7)
	require.ElementsMatch(t, []string{"1", "2", "3", "4", "5", "6", "7"}, s.broker.IDs(), "each once")
	ofA := slices.DeleteFunc(s.broker.IDs(), func(id string) bool { return id > "4" })
	require.Equal(t, []string{"1", "2", "3", "4"}, ofA)
}

func TestAnEventWithoutARouteHoldsUpTheReader(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	results := make(chan error, 100)
	s.read(func(cfg *cdc.Config, _ *cdc.Postgres) {
		cfg.Publish = func(ctx context.Context, batch []outbox.Envelope) []error {
			list := s.relay.Publish(ctx, batch)
			results <- list[0]
			return list
		}
	})
	s.ready()
	_, err := s.writer.WriteUnmanaged(t.Context(), s.db, []outbox.Envelope{{EventID: "x1", EventType: "Unknown", Payload: outbox.RawJSON(`"secret"`)}})
	require.NoError(t, err)
	err = (<-results)
	require.ErrorIs(t, err, relay.ErrUnroutable)
	require.ErrorContains(t, err, "x1")
	require.NotContains(t, err.Error(), "secret")
	require.Error(t, (<-results), "it tries again")
}

// The server ends a connection on which it hears nothing for wal_sender_timeout.
func TestTheServerHearsFromTheReaderDuringALongBatch(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	_, err := s.db.ExecContext(t.Context(), "ALTER SYSTEM SET wal_sender_timeout = '2s'")
	require.NoError(t, err)
	_, err = s.db.ExecContext(t.Context(), "SELECT pg_reload_conf()")
	require.NoError(t, err)
	relaytest.Eventually(t, "the setting is there", func() bool {
		return s.ask("SELECT setting::int FROM pg_settings WHERE name = 'wal_sender_timeout'") == 2000
	})
	calls := make(chan struct{}, 100)
	s.read(func(cfg *cdc.Config, pg *cdc.Postgres) {
		pg.Keepalive = 200 * time.Millisecond
		cfg.BatchSize = 1
		cfg.Publish = func(ctx context.Context, batch []outbox.Envelope) []error {
			calls <- struct{}{}
			<-time.After(5 * time.Second) // two and a half times as long as the server waits
			return s.relay.Publish(ctx, batch)
		}
	})
	s.ready()
	s.commit("a", "1")
	s.published(1)
	s.commit("a", "2")
	s.published(2)
	require.Equal(t, []string{"1", "2"}, s.broker.IDs())
	require.Len(t, calls, 2)
}
