package relaykafka_test

import (
	"context"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outboxkit/outbox-go/internal/testing/relaytest"
	"github.com/outboxkit/outbox-go/relay"
	relaykafka "github.com/outboxkit/outbox-go/relay/kafka"
)

// proxied leads all connections through a proxy: brokers tell clients their own address.
func proxied(proxy *relaytest.Proxy) kgo.Opt { return dialing(proxy.Addr) }

func dialing(addr string) kgo.Opt {
	return kgo.Dialer(func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, addr)
	})
}

func TestNothingIsLostWhileTheBrokerIsRestartedAndCutOff(t *testing.T) {
	c := start(t, kfake.SeedTopics(4, relaytest.Topic))
	relaytest.Prove(t, relaytest.Broker{
		Addr: c.addr,
		Connect: func(t testing.TB, addr string) relay.Publisher {
			p, err := relaykafka.New(relaykafka.Config{Brokers: []string{addr}, Options: []kgo.Opt{dialing(addr)}})
			require.NoError(t, err)
			return p
		},
		Server: c, Away: outage,
		Stored: func(t testing.TB) (list []relaytest.Stored) {
			for _, r := range c.stored(t, relaytest.Topic) {
				list = append(list, relaytest.Stored{ID: header(r, relaykafka.HeaderMessageID), Body: r.Value})
			}
			return list
		},
	})
}
