package relayrabbitmq_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/relaytest"
	"github.com/outboxkit/outbox-go/relay"
	relayrabbitmq "github.com/outboxkit/outbox-go/relay/rabbitmq"
)

// A node that accepts connections and does not answer holds up a dial for 30 s.
func TestCloseDoesNotWaitForADialThatHangs(t *testing.T) {
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = listener.Close() }()
	p, err := relayrabbitmq.New(relayrabbitmq.Config{URLs: []string{"amqp://guest:guest@" + listener.Addr().String() + "/"}})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	published := make(chan []error, 1)
	go func() { published <- p.Publish(ctx, []relay.Message{message("a", "1")}) }()
	conn, err := listener.Accept() // the dial has begun
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	began := time.Now()
	require.ErrorIs(t, p.Close(context.Background()), context.DeadlineExceeded)
	require.Less(t, time.Since(began), 20*time.Second)
	cancel()
	require.ErrorIs(t, (<-published)[0], relay.ErrUnavailable)
	require.NoError(t, p.Close(t.Context()))
}

func TestTheCallersURLsAreCopied(t *testing.T) {
	addr := relaytest.FreeAddr(t)
	urls := []string{"amqp://guest:guest@" + addr + "/"}
	p, err := relayrabbitmq.New(relayrabbitmq.Config{URLs: urls})
	require.NoError(t, err)
	urls[0] = "amqp://guest:guest@127.0.0.1:1/"
	require.ErrorContains(t, p.Publish(t.Context(), []relay.Message{message("a", "1")})[0], addr)
	require.NoError(t, p.Close(t.Context()))
}
