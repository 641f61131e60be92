package relaykafka_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outboxkit/outbox-go/internal/testing/relaytest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
	"github.com/outboxkit/outbox-go/relay"
)

var noted = outbox.NewTopic[string]("Note", "Noted")

// large is a text that a topic with a limit of 20,000 bytes does not take.
var large = strings.Repeat("x", 30_000)

// order is the first letter of each record, in the topic's order.
func order(list []*kgo.Record) (letters string) {
	for _, r := range list {
		letters += strings.Trim(string(r.Value), `"`)[:1]
	}
	return letters
}

// A loop that publishes a batch, and again what failed of it, changes the order of a key:
// the client refuses the message that is too large, and sends those behind it.
func TestALoopOverBatchesChangesTheOrder(t *testing.T) {
	c := start(t, kfake.SeedTopics(1, "notes"))
	var records []*kgo.Record
	for _, text := range []string{"1" + large, "2", "3"} {
		records = append(records, &kgo.Record{Topic: "notes", Key: []byte("a"), Value: []byte(text)})
	}
	for _, limit := range []int32{20_000, 200_000} { // an operator raises it
		client, err := kgo.NewClient(kgo.SeedBrokers(c.addr), kgo.ProducerBatchMaxBytes(limit), kgo.ProducerBatchCompression(kgo.NoCompression()))
		require.NoError(t, err)
		var failed []*kgo.Record
		for _, result := range client.ProduceSync(t.Context(), records...) {
			if result.Err != nil {
				failed = append(failed, result.Record)
			}
		}
		client.Close()
		records = failed
	}
	require.Empty(t, records)
	require.Equal(t, "231", order(c.stored(t, "notes")))
}

// The relay does not: the rest of the key waits until the event is replayed or deleted.
func TestTheRelayKeepsTheOrderAroundAMessageThatIsTooLarge(t *testing.T) {
	c := start(t, kfake.SeedTopics(1, "notes"))
	limitTopic(t, c, "notes", "20000")
	r, err := relay.New(relay.Config{
		Publisher: publisher(t, c, kgo.ProducerBatchCompression(kgo.NoCompression())), Source: "/notes",
		Routes: []relay.Route{relay.To("notes", noted.Kind())}, Batch: outbox.BatchOptions{Wait: time.Millisecond},
	})
	require.NoError(t, err)
	db, store := testdb.Open(t, testdb.Main()[0]), sqlstore.Postgres(sqlstore.WithKeyIndex())
	require.NoError(t, store.CreateSchema(t.Context(), db))
	ob, err := outbox.New(outbox.Config{
		DB: db, Store: store, Logger: slog.New(slog.DiscardHandler),
		Mode: outbox.OrderedByKey{Poll: outbox.PollOptions{Interval: 50 * time.Millisecond}},
	})
	require.NoError(t, err)
	require.NoError(t, ob.Register(r.Bindings()...))
	_, err = ob.Writer().WriteUnmanaged(t.Context(), db, []outbox.Envelope{
		noted.Envelope("a", "1"+large), noted.Envelope("a", "2"), noted.Envelope("a", "3"), noted.Envelope("b", "b"),
	})
	require.NoError(t, err)
	require.NoError(t, ob.Start(t.Context()))
	defer func() { require.NoError(t, ob.Close(t.Context())) }()

	var dead outbox.Page[outbox.DeadLetter]
	relaytest.Eventually(t, "the event is dead", func() bool {
		dead, err = ob.DeadLetters().Find(t.Context(), outbox.DeadQuery{Limit: 10})
		require.NoError(t, err)
		return len(dead.Rows) == 1
	})
	require.Contains(t, dead.Rows[0].LastError, "relay: publishing event "+dead.Rows[0].EventID+` to "notes": the broker refuses the message: MESSAGE_TOO_LARGE`)
	relaytest.Eventually(t, "the other key is published", func() bool { return order(c.stored(t, "notes")) == "b" })

	limitTopic(t, c, "notes", "200000")
	require.NoError(t, ob.DeadLetters().Replay(t.Context(), dead.Rows[0].EventID))
	relaytest.Eventually(t, "all are published", func() bool { return len(c.stored(t, "notes")) == 4 })
	require.Equal(t, "b123", order(c.stored(t, "notes")))
}
