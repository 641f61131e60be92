package relayrabbitmq_test

import (
	"context"
	"fmt"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/inbox"
	"github.com/outboxkit/outbox-go/internal/relaytest"
	"github.com/outboxkit/outbox-go/internal/testdb"
	"github.com/outboxkit/outbox-go/relay"
	relayrabbitmq "github.com/outboxkit/outbox-go/relay/rabbitmq"
)

// Every message is published twice, and the consumer dies again and again between its
// commit and its acknowledgement.
func TestAConsumerWithAnInboxBooksEachMessageOnce(t *testing.T) {
	s := start(t)
	s.declare(t, "payments", "billing", "#", nil)
	db := testdb.Open(t, testdb.Main()[0])
	box, err := inbox.New(inbox.Config{Dialect: inbox.Postgres})
	require.NoError(t, err)
	require.NoError(t, box.CreateSchema(t.Context(), db))
	_, err = db.ExecContext(t.Context(), "CREATE TABLE booking (message text, payload text)")
	require.NoError(t, err)

	const messages = 60
	p := publisher(t, relayrabbitmq.Config{URLs: []string{s.url()}, Exchange: "payments"})
	for i := range 2 * messages {
		require.Nil(t, p.Publish(t.Context(), []relay.Message{message("paid", fmt.Sprint(i/2))}))
	}

	redelivered := 0
	for range 5 { // it commits, and its connection breaks before the acknowledgement
		conn, err := amqp.Dial(s.url())
		require.NoError(t, err)
		ch, err := conn.Channel()
		require.NoError(t, err)
		require.NoError(t, ch.Qos(20, 0, false))
		deliveries, err := ch.Consume("billing", "", false, false, false, false, nil)
		require.NoError(t, err)
		for range 10 {
			d := <-deliveries
			if d.Redelivered {
				redelivered++
			}
			require.NoError(t, book(t.Context(), db.DB, box, d))
		}
		require.NoError(t, conn.Close())
	}
	require.NotZero(t, redelivered)

	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	ch := s.open(t)
	go func() { ended <- consume(ctx, ch, "billing", db.DB, box) }()
	watch := s.open(t)
	relaytest.Eventually(t, "the queue is empty", func() bool {
		state, err := watch.QueueDeclarePassive("billing", true, false, false, false, nil)
		require.NoError(t, err)
		return state.Messages == 0 && bookings(t, db, "count(*)") >= messages
	})
	stop()
	require.Error(t, <-ended)
	require.Equal(t, messages, bookings(t, db, "count(DISTINCT message)"))
	require.Equal(t, messages, bookings(t, db, "count(*)"), "each once")
}

func bookings(t *testing.T, db *testdb.DB, what string) (n int) {
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT "+what+" FROM booking").Scan(&n))
	return n
}
