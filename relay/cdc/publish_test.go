package cdc_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/relaytest"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/relay/cdc"
)

// grave keeps dead events.
type grave struct {
	mu   sync.Mutex
	dead map[string]string // reasons
	fail bool
}

func (g *grave) take(_ context.Context, env outbox.Envelope, err error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.fail {
		g.fail = false
		return errors.New("the table is full")
	}
	if g.dead == nil {
		g.dead = map[string]string{}
	}
	g.dead[env.EventID] = err.Error()
	return nil
}

func (g *grave) ids() (ids []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for id := range g.dead {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// The broker refuses an event, a row cannot be read, an event has no route: with Dead they hold up nothing.
func TestDeadTakesEventsThatCannotBePublished(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.broker.Refuse("3")
	g := &grave{fail: true}
	s.read(func(cfg *cdc.Config, _ *cdc.Postgres) { cfg.Dead, cfg.MaxAttempts = g.take, 2 })
	s.ready()
	s.commit("a", "1", "2")
	s.commit("a", "3", "4")
	s.exec("INSERT INTO outbox_event (event_id, event_type, payload, headers, status, available_at, created_at) VALUES ('5', 'Placed', '1', '[1]', 0, now(), now())")
	_, err := s.writer.WriteUnmanaged(t.Context(), s.db, []outbox.Envelope{{EventID: "6", EventType: "Unknown", Payload: outbox.RawJSON(`"secret"`)}})
	require.NoError(t, err)
	s.commit("a", "7")
	s.published(4)
	require.Equal(t, []string{"1", "2", "4", "7"}, s.broker.IDs())
	relaytest.Eventually(t, "the dead events are kept", func() bool { return len(g.ids()) == 3 })
	require.Equal(t, []string{"3", "5", "6"}, g.ids())
	require.Contains(t, g.dead["3"], "refuses")
	require.Contains(t, g.dead["5"], "headers are not a flat object")
	require.NotContains(t, g.dead["6"], "secret")
}

func TestAPanicOfPublishHoldsUpTheReader(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	var panics atomic.Int32
	s.read(func(cfg *cdc.Config, _ *cdc.Postgres) {
		cfg.Publish = func(ctx context.Context, batch []outbox.Envelope) []error {
			switch panics.Add(1) {
			case 1:
				panic("no topic")
			case 2:
				return make([]error, len(batch)+1)
			}
			return s.relay.Publish(ctx, batch)
		}
	})
	s.ready()
	s.commit("a", "1", "2")
	s.published(2)
	require.Equal(t, []string{"1", "2"}, s.broker.IDs())
	require.EqualValues(t, 3, panics.Load())
}

// A listener gets one event after the other; a failure holds back its key alone within a batch.
func TestEventsGoToAListener(t *testing.T) {
	t.Parallel()
	var got []string
	failed := false
	publish := cdc.ToListener(outbox.ListenerFunc(func(_ context.Context, env outbox.Envelope) error {
		if env.EventID == "1" && !failed {
			failed = true
			panic("once")
		}
		got = append(got, env.EventID)
		return nil
	}))
	batch := []outbox.Envelope{{EventID: "1", AggregateID: "a"}, {EventID: "2", AggregateID: "b"}, {EventID: "3", AggregateID: "a"}, {EventID: "4"}, {EventID: "5"}}
	errs := publish(t.Context(), batch)
	require.ErrorContains(t, errs[0], "once")
	var decided *outbox.OutcomeError
	require.ErrorAs(t, errs[2], &decided)
	require.Equal(t, outbox.OutcomeDeferred, decided.Outcome)
	require.Equal(t, []string{"2", "4", "5"}, got)
	require.Equal(t, []error{nil, nil, nil}, []error{errs[1], errs[3], errs[4]})
	require.Equal(t, []error{nil, nil}, publish(t.Context(), []outbox.Envelope{batch[0], batch[2]}))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, publish(ctx, batch)[4], context.Canceled)
}

// A transaction of many large events does not come into memory at once, whatever the broker's pace.
func TestALargeTransactionIsPublishedInBatches(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	const events, body, bytes = 20_000, 4_000, 1 << 20
	s.exec("INSERT INTO outbox_event (event_id, event_type, aggregate_type, aggregate_id, payload, status, available_at, created_at) " +
		"SELECT lpad(n::text, 6, '0'), 'Placed', 'Order', (n % 100)::text, to_jsonb(repeat('x', 4000)), 0, now(), now() FROM generate_series(1, 20000) n")
	var largest, published, most atomic.Int64
	s.read(func(cfg *cdc.Config, _ *cdc.Postgres) {
		cfg.BatchBytes = bytes
		cfg.Publish = func(_ context.Context, batch []outbox.Envelope) []error {
			n := 0
			for _, env := range batch {
				n += len(env.Payload.Bytes())
			}
			largest.Store(max(largest.Load(), int64(n)))
			most.Store(max(most.Load(), int64(len(batch))))
			published.Add(int64(len(batch)))
			return nil
		}
	})
	relaytest.Eventually(t, "all events are published", func() bool { return published.Load() == events })
	require.LessOrEqual(t, largest.Load(), int64(bytes+body+10))
	require.Greater(t, most.Load(), int64(200), "batches are full under load")
	relaytest.Eventually(t, "the transaction is confirmed", func() bool {
		return s.ask("SELECT count(*) FROM pg_replication_slots WHERE confirmed_flush_lsn >= pg_current_wal_lsn()") == 1
	})
	require.EqualValues(t, events, published.Load())
}

func TestAConfigIsChecked(t *testing.T) {
	t.Parallel()
	_, err := cdc.New(cdc.Config{})
	require.ErrorContains(t, err, "cdc.Config.Source")
	require.ErrorContains(t, err, "cdc.Config.Publish")
	_, err = cdc.New(cdc.Config{
		MaxAttempts: -1, BatchSize: -1, BatchBytes: -1, MaxBackoff: time.Millisecond,
		Source: cdc.Postgres{DSN: "postgres://u:secret@h:port/db", Slot: "Shop-1", Tables: []string{"a b"}, Keepalive: -1},
	})
	for _, field := range []string{"Config.MaxAttempts", "Config.BatchSize", "Config.BatchBytes", "Config.MaxBackoff", "Postgres.DSN", "Postgres.Slot", "Postgres.Tables[0]", "Postgres.Keepalive"} {
		require.ErrorContains(t, err, "cdc."+field)
	}
	require.NotContains(t, err.Error(), "secret")
	publish := func(context.Context, []outbox.Envelope) []error { return nil }
	_, err = cdc.New(cdc.Config{Source: cdc.Postgres{DSN: "postgres://h/db", Slot: strings.Repeat("s", 58)}, Publish: publish})
	require.ErrorContains(t, err, "at most 57")
	_, err = cdc.New(cdc.Config{Source: cdc.Postgres{DSN: "postgres://h/db"}, Publish: publish})
	require.NoError(t, err)
}
