package relaytest

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
	"github.com/outboxkit/outbox-go/relay"
)

// batch is how many messages [Compare] publishes at once: the relay's default.
const batch = relay.DefaultBatchSize

// Compare measures messages a second: of loop, which publishes a batch with the broker's client
// alone, and of the publisher, with the same messages. Loop and publisher take turns at being
// first, and the figures are medians of the rounds. Then Compare measures a whole outbox with a
// relay, which drains a table on PostgreSQL.
func Compare(b *testing.B, publisher relay.Publisher, loop func(ctx context.Context, messages []relay.Message) error) {
	b.Helper()
	const rounds = 120
	serial := 0
	timed := func(publish func(messages []relay.Message)) float64 {
		list := make([]relay.Message, batch)
		for i := range list { // the broker does not know these ids
			serial++
			list[i] = benchMessage(serial)
		}
		began := time.Now()
		publish(list)
		return time.Since(began).Seconds()
	}
	bare := func() float64 {
		return timed(func(messages []relay.Message) { require.NoError(b, loop(b.Context(), messages)) })
	}
	ours := func() float64 {
		return timed(func(messages []relay.Message) { require.Nil(b, publisher.Publish(b.Context(), messages)) })
	}
	var loops, published, ratios []float64
	for i := range b.N * rounds {
		var x, y float64
		if i%2 == 0 {
			x = bare()
			y = ours()
		} else {
			y = ours()
			x = bare()
		}
		loops, published, ratios = append(loops, x), append(published, y), append(ratios, x/y)
	}
	b.ReportMetric(batch/median(loops), "loop/s")
	b.ReportMetric(batch/median(published), "publisher/s")
	b.ReportMetric(median(ratios), "of-loop")
	b.ReportMetric(drain(b, publisher), "outbox/s")
}

func median(list []float64) float64 {
	slices.Sort(list)
	return list[len(list)/2]
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

// drain is how many events a second a single process publishes from a table of 50,000.
func drain(b *testing.B, publisher relay.Publisher) float64 {
	b.Helper()
	const events = 50_000
	p := newProof(b, Broker{}, sqlstore.Postgres())
	p.write(events)
	_, err := p.db.ExecContext(b.Context(), "ANALYZE")
	require.NoError(b, err)

	r, err := relay.New(relay.Config{
		Publisher: recorder{publisher, &p.seen}, Source: "/counters", Routes: []relay.Route{relay.To(Topic, counted.Kind())},
	})
	require.NoError(b, err)
	ob, err := outbox.New(outbox.Config{DB: p.db, Store: p.store, Mode: outbox.MultiNode{}, Logger: slog.New(slog.DiscardHandler)})
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
