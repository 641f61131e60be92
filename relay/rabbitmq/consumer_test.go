package relayrabbitmq_test

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/inbox"
	"github.com/outboxkit/outbox-go/internal/testing/relaytest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
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

// A queue delivers a message again at once. Without a pause the consumer would turn, and
// log, as fast as it can; so it would from the end of the context to the broker's answer.
func TestAConsumerWhoseDatabaseIsAwayPauses(t *testing.T) {
	s := start(t)
	s.declare(t, "payments", "billing", "#", nil)
	p := publisher(t, relayrabbitmq.Config{URLs: []string{s.url()}, Exchange: "payments"})
	require.Nil(t, p.Publish(t.Context(), []relay.Message{message("paid", "1")}))
	db, err := sql.Open("pgx", "postgres://postgres@"+relaytest.FreeAddr(t)+"/none?sslmode=disable")
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	box, err := inbox.New(inbox.Config{Dialect: inbox.Postgres})
	require.NoError(t, err)
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(before)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	require.Error(t, consume(ctx, s.open(t), "billing", db, box))
	lines := strings.Count(log.String(), "goes back")
	require.NotZero(t, lines)
	require.LessOrEqual(t, lines, 5)
}

func bookings(t *testing.T, db *testdb.DB, what string) (n int) {
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT "+what+" FROM booking").Scan(&n))
	return n
}
