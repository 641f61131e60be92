package relayrabbitmq_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/relaytest"
	"github.com/outboxkit/outbox-go/relay"
	relayrabbitmq "github.com/outboxkit/outbox-go/relay/rabbitmq"
)

func TestNothingIsLostWhileTheBrokerIsKilledAndCutOff(t *testing.T) { relaytest.Prove(t, broker(t)) }

func TestTheRelayCatchesUpAfterAnOutage(t *testing.T) { relaytest.Outage(t, broker(t)) }

// broker is a server that can be killed, with an exchange and a queue.
func broker(t *testing.T) relaytest.Broker {
	t.Helper()
	s := start(t)
	s.declare(t, "proof", "proof", relaytest.Topic, nil)
	return relaytest.Broker{
		Addr: s.addr,
		Connect: func(t testing.TB, addr string) relay.Publisher {
			p, err := relayrabbitmq.New(relayrabbitmq.Config{URLs: []string{"amqp://guest:guest@" + addr + "/"}, Exchange: "proof"})
			require.NoError(t, err)
			return p
		},
		Server: s,
		Stored: func(t testing.TB) (list []relaytest.Stored) {
			for _, d := range s.stored(t, "proof") {
				list = append(list, relaytest.Stored{ID: d.MessageId, Body: d.Body})
			}
			return list
		},
	}
}
