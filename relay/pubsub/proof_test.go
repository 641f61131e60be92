package relaypubsub_test

import (
	"testing"

	"github.com/outboxkit/outbox-go/internal/testing/relaytest"
	"github.com/outboxkit/outbox-go/relay"
	relaypubsub "github.com/outboxkit/outbox-go/relay/pubsub"
)

func TestNothingIsLostWhileTheServerIsStopped(t *testing.T) { relaytest.Prove(t, broker(t)) }

func TestTheRelayCatchesUpAfterAnOutage(t *testing.T) { relaytest.Outage(t, broker(t)) }

// broker is a server that can be stopped, with a topic.
func broker(t *testing.T) relaytest.Broker {
	t.Helper()
	s := start(t, nil)
	return relaytest.Broker{
		Addr: s.addr, Server: s,
		Connect: func(t testing.TB, addr string) relay.Publisher { return publisher(t, addr) },
		Stored: func(testing.TB) (all []relaytest.Stored) {
			for _, m := range s.Messages() {
				all = append(all, relaytest.Stored{ID: m.Attributes[relaypubsub.AttributeMessageID], Body: m.Data})
			}
			return all
		},
	}
}
