package relaytest

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
	"github.com/outboxkit/outbox-go/relay"
)

// batch is how many messages [Compare] publishes at once: the relay's default.
const batch = relay.DefaultBatchSize

// Compare measures messages a second: first of loop, which publishes a batch with the
// broker's client alone, then of the publisher, with the same messages, then of a whole
// outbox with a relay, which drains a table on PostgreSQL. serial makes ids that the
// broker has not had.
func Compare(b *testing.B, publisher relay.Publisher, loop func(ctx context.Context, messages []relay.Message) error) {
	b.Helper()
	const rounds = 60
	var bare, ours time.Duration
	serial := 0
	next := func() []relay.Message {
		list := make([]relay.Message, batch)
		for i := range list {
			serial++
			list[i] = benchMessage(serial)
		}
		return list
	}
	for range b.N {
		for range rounds { // in turn, so that both have the same machine
			list := next()
			began := time.Now()
			require.NoError(b, loop(b.Context(), list))
			bare += time.Since(began)
			list = next()
			began = time.Now()
			require.Nil(b, publisher.Publish(b.Context(), list))
			ours += time.Since(began)
		}
	}
	n := float64(b.N * rounds * batch)
	b.ReportMetric(n/bare.Seconds(), "loop/s")
	b.ReportMetric(n/ours.Seconds(), "publisher/s")
	b.ReportMetric(bare.Seconds()/ours.Seconds(), "of-loop")
	b.ReportMetric(drain(b, publisher), "outbox/s")
}

// benchMessage is a message as the relay makes it.
func benchMessage(n int) relay.Message {
	id, key := fmt.Sprintf("01JBENCH%018d", n), fmt.Sprintf("o-%d", n)
	return relay.Message{
		Topic: Topic, Key: key, ID: id, ContentType: "application/json", Time: time.Now(),
		Attributes: []relay.Attribute{
			{Name: "specversion", Value: "1.0"},
			{Name: "id", Value: id},
			{Name: "source", Value: "/orders"},
			{Name: "type", Value: "Counted"},
			{Name: "time", Value: "2026-01-02T03:04:05.678901Z"},
			{Name: "datacontenttype", Value: "application/json"},
			{Name: "aggregatetype", Value: "Counter"},
			{Name: "subject", Value: key},
			{Name: "partitionkey", Value: key},
		},
		Body: fmt.Appendf(nil, `{"Key":%q,"N":%d,"Text":"%0100d"}`, key, n, n),
	}
}

// drain is how many events a second one process publishes from a table of 50,000.
func drain(b *testing.B, publisher relay.Publisher) float64 {
	b.Helper()
	const events = 50_000
	db, store := testdb.Open(b, testdb.Main()[0]), sqlstore.Postgres()
	p := &proof{t: b, db: db, store: store, seen: seen{failed: map[string]int{}, errors: map[string]int{}}, next: map[string]int{}}
	require.NoError(b, store.CreateSchema(b.Context(), db))
	only, err := outbox.New(outbox.Config{DB: db, Store: store, Mode: outbox.WriterOnly{}})
	require.NoError(b, err)
	p.writer = only.Writer()
	p.write(events)
	_, err = db.ExecContext(b.Context(), "ANALYZE")
	require.NoError(b, err)

	r, err := relay.New(relay.Config{
		Publisher: recorder{publisher, &p.seen}, Source: "/counters", Routes: []relay.Route{relay.To(Topic, counted.Kind())},
	})
	require.NoError(b, err)
	ob, err := outbox.New(outbox.Config{DB: db, Store: store, Mode: outbox.MultiNode{}, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(b, err)
	require.NoError(b, ob.Register(r.Bindings()...))
	began := time.Now()
	require.NoError(b, ob.Start(b.Context()))
	Eventually(b, "the table is drained", func() bool { return p.seen.acks() >= events })
	p.delivered()
	took := time.Since(began)
	require.NoError(b, ob.Close(b.Context()))
	return events / took.Seconds()
}
