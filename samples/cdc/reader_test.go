package main

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/relaytest"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
	"github.com/outboxkit/outbox-go/relay"
)

var placed = outbox.NewTopic[int]("Order", "Placed")

// broker is a publisher that keeps what it got.
type broker struct {
	mu      sync.Mutex
	got     []relay.Message
	away    bool
	refuse  string // an event
	refused int    // calls
}

func (b *broker) Publish(_ context.Context, messages []relay.Message) []error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.away {
		b.refused++
		return slices.Repeat([]error{fmt.Errorf("%w: connection refused", relay.ErrUnavailable)}, len(messages))
	}
	errs := make([]error, len(messages))
	for i, m := range messages {
		if eventOf(m) == b.refuse {
			b.refused++
			errs[i] = fmt.Errorf("%w: too large", relay.ErrRefused)
			continue
		}
		b.got = append(b.got, m)
	}
	return errs
}

// eventOf is the event id at the end of a message's id.
func eventOf(m relay.Message) string { return m.ID[strings.LastIndexByte(m.ID, ':')+1:] }

// refuses lets the broker refuse one event, or none.
func (b *broker) refuses(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refuse = id
}

func (b *broker) Ping(context.Context) error  { return nil }
func (b *broker) Close(context.Context) error { return nil }

func (b *broker) ids() (ids []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range b.got {
		ids = append(ids, eventOf(m))
	}
	return ids
}

func (b *broker) calls() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.refused
}

func (b *broker) set(away bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.away = away
}

// shop is an outbox that only writes, on a server with logical decoding, and a broker.
type shop struct {
	t      *testing.T
	server *relaytest.Process
	dsn    string
	db     *sql.DB
	store  *sqlstore.Store
	writer *outbox.Writer
	broker *broker
	relay  *relay.Relay
}

func newShop(t *testing.T) *shop {
	s := &shop{t: t, store: sqlstore.Postgres(sqlstore.WithAgeIndex()), broker: &broker{}}
	s.server, s.dsn = postgres(t)
	s.db = open(t, s.dsn)
	require.NoError(t, s.store.CreateSchema(t.Context(), s.db))
	ob, err := outbox.New(outbox.Config{DB: s.db, Store: s.store, Mode: outbox.WriterOnly{}})
	require.NoError(t, err)
	s.writer = ob.Writer()
	s.relay, err = relay.New(relay.Config{
		Publisher: s.broker, Source: "/orders", Routes: []relay.Route{relay.To("orders", placed.Kind())}, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	require.NoError(t, s.reader().CreateSlot(t.Context()))
	return s
}

func (s *shop) reader() *Reader {
	return &Reader{DSN: s.dsn, Table: s.store.Table(), Slot: "cdc", Publish: s.relay.Publish}
}

// read starts a reader. stop ends it and returns its error.
func (s *shop) read() (stop func() error) {
	ctx, cancel := context.WithCancel(s.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.reader().Run(ctx) }()
	s.t.Cleanup(cancel)
	return func() error {
		cancel()
		return <-ended
	}
}

// ready waits until a reader follows the slot.
func (s *shop) ready() {
	relaytest.Eventually(s.t, "the reader follows the slot", func() bool { return s.ask("SELECT count(*) FROM pg_replication_slots WHERE active") == 1 })
}

// free waits until the server has noticed that the reader is gone.
func (s *shop) free() {
	relaytest.Eventually(s.t, "the slot is free", func() bool { return s.ask("SELECT count(*) FROM pg_replication_slots WHERE active") == 0 })
}

func (s *shop) ask(query string) (n int) {
	require.NoError(s.t, s.db.QueryRowContext(s.t.Context(), query).Scan(&n))
	return n
}

func (s *shop) begin() *sql.Tx {
	tx, err := s.db.BeginTx(s.t.Context(), nil)
	require.NoError(s.t, err)
	return tx
}

// write writes events whose ids are given, of one key.
func (s *shop) write(tx *sql.Tx, key string, ids ...string) {
	var envs []outbox.Envelope
	for i, id := range ids {
		env := placed.Envelope(key, i)
		env.EventID, env.TenantID, env.Headers = id, "acme", map[string]string{"traceparent": "00-1"}
		envs = append(envs, env)
	}
	_, err := s.writer.WriteUnmanaged(s.t.Context(), tx, envs)
	require.NoError(s.t, err)
}

// commit writes events in a transaction of their own.
func (s *shop) commit(key string, ids ...string) {
	tx := s.begin()
	s.write(tx, key, ids...)
	require.NoError(s.t, tx.Commit())
}

func (s *shop) published(n int) {
	relaytest.Eventually(s.t, fmt.Sprintf("%d events are published", n), func() bool { return len(s.broker.ids()) >= n })
}

func TestEventsArePublishedInTheOrderOfTheirCommits(t *testing.T) {
	s := newShop(t)
	stop := s.read()
	s.ready()
	first, undone := s.begin(), s.begin()
	s.write(first, "a", "1", "2")
	s.write(undone, "a", "never")
	s.commit("a", "3")
	require.NoError(t, undone.Rollback())
	require.NoError(t, first.Commit())
	s.commit("b", "4")
	s.published(4)
	require.Equal(t, []string{"3", "1", "2"}, slices.DeleteFunc(s.broker.ids(), func(id string) bool { return id == "4" }), "of one key")
	m := s.broker.got[slices.Index(s.broker.ids(), "1")]
	require.Equal(t, []string{"orders", "a", "0", "00-1"}, []string{m.Topic, m.Key, string(m.Body), m.Headers["traceparent"]})
	require.False(t, m.Time.IsZero())
	require.Contains(t, m.Attributes, relay.Attribute{Name: "type", Value: "Placed"})
	require.ErrorIs(t, stop(), context.Canceled)
}

func TestAReaderBeginsAgainAtItsConfirmedPosition(t *testing.T) {
	s := newShop(t)
	stop := s.read()
	s.ready()
	s.commit("a", "1", "2")
	s.published(2)
	relaytest.Eventually(t, "the position is confirmed", func() bool {
		return s.ask("SELECT count(*) FROM pg_replication_slots WHERE confirmed_flush_lsn >= pg_current_wal_lsn()") == 1
	})
	_ = stop()
	s.free()
	s.commit("a", "3", "4") // while no reader is there
	s.read()
	s.published(4)
	require.Equal(t, []string{"1", "2", "3", "4"}, s.broker.ids())
}

func TestNothingIsLostWhileTheBrokerIsAway(t *testing.T) {
	s := newShop(t)
	s.broker.set(true)
	stop := s.read()
	s.ready()
	var want []string
	for i := range 1200 { // more than two batches
		want = append(want, fmt.Sprintf("%04d", i))
	}
	s.commit("a", want[0])
	relaytest.Eventually(t, "the reader has tried, and tries again", func() bool { return s.broker.calls() > 1 })
	s.commit("a", want[1:700]...)
	s.commit("a", want[700:]...)
	_ = stop() // the reader dies with events in hand
	s.free()
	s.read()
	s.ready()
	require.Empty(t, s.broker.ids())
	s.broker.set(false)
	s.published(len(want))
	require.Equal(t, want, s.broker.ids())
}

func TestNothingIsLostWhenTheDatabaseIsKilled(t *testing.T) {
	s := newShop(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- follow(ctx, s.reader()) }()
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
	relaytest.Eventually(t, "the last event is published", func() bool { return slices.Contains(s.broker.ids(), want[299]) })
	cancel()
	require.NoError(t, <-ended)
	seen := map[string]bool{}
	require.Equal(t, want, slices.DeleteFunc(s.broker.ids(), func(id string) bool {
		again := seen[id]
		seen[id] = true
		return again
	}))
}

// Neither an event that the broker refuses nor one without a route is overtaken, and what
// was published before it is not published again.
func TestAnEventThatIsRefusedHoldsUpTheReader(t *testing.T) {
	s := newShop(t)
	s.broker.refuses("3")
	s.read()
	s.ready()
	s.commit("a", "1", "2")
	s.commit("a", "3", "4")
	s.commit("b", "5")
	relaytest.Eventually(t, "it is refused three times", func() bool { return s.broker.calls() >= 3 })
	s.commit("b", "6")
	require.Subset(t, []string{"1", "2", "5"}, s.broker.ids())
	require.Equal(t, 1, s.ask("SELECT count(*) FROM pg_replication_slots WHERE active"), "the reader is still there")
	s.broker.refuses("")
	s.published(6)
	s.commit("b", "7")
	s.published(7)
	require.ElementsMatch(t, []string{"1", "2", "3", "4", "5", "6", "7"}, s.broker.ids(), "each once")
	ofA := slices.DeleteFunc(s.broker.ids(), func(id string) bool { return id > "4" })
	require.Equal(t, []string{"1", "2", "3", "4"}, ofA)
}

func TestAnEventWithoutARouteHoldsUpTheReader(t *testing.T) {
	s := newShop(t)
	results := make(chan error, 100)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- (&Reader{DSN: s.dsn, Table: s.store.Table(), Slot: "cdc", Publish: func(ctx context.Context, batch []outbox.Envelope) []error {
			list := s.relay.Publish(ctx, batch)
			results <- list[0]
			return list
		}}).Run(ctx)
	}()
	s.ready()
	_, err := s.writer.WriteUnmanaged(t.Context(), s.db, []outbox.Envelope{{EventID: "x1", EventType: "Unknown", Payload: outbox.RawJSON(`"secret"`)}})
	require.NoError(t, err)
	err = (<-results)
	require.ErrorIs(t, err, relay.ErrUnroutable)
	require.ErrorContains(t, err, "x1")
	require.NotContains(t, err.Error(), "secret")
	require.Error(t, (<-results), "it tries again")
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
}

// The server ends a connection on which it hears nothing for wal_sender_timeout.
func TestTheServerHearsFromTheReaderDuringALongBatch(t *testing.T) {
	s := newShop(t)
	_, err := s.db.ExecContext(t.Context(), "ALTER SYSTEM SET wal_sender_timeout = '2s'")
	require.NoError(t, err)
	_, err = s.db.ExecContext(t.Context(), "SELECT pg_reload_conf()")
	require.NoError(t, err)
	relaytest.Eventually(t, "the setting is there", func() bool {
		return s.ask("SELECT setting::int FROM pg_settings WHERE name = 'wal_sender_timeout'") == 2000
	})
	calls := make(chan struct{}, 100)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- (&Reader{DSN: s.dsn, Table: s.store.Table(), Slot: "cdc", Keepalive: 200 * time.Millisecond, Publish: func(ctx context.Context, batch []outbox.Envelope) []error {
			calls <- struct{}{}
			<-time.After(5 * time.Second) // two and a half times as long as the server waits
			return s.relay.Publish(ctx, batch)
		}}).Run(ctx)
	}()
	s.ready()
	s.commit("a", "1")
	s.published(1)
	s.commit("a", "2")
	s.published(2)
	require.Equal(t, []string{"1", "2"}, s.broker.ids())
	require.Len(t, calls, 2)
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
}
