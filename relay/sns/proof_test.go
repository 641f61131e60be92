package relaysns_test

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/relaytest"
	"github.com/outboxkit/outbox-go/internal/testing/snstest"
	"github.com/outboxkit/outbox-go/internal/testing/sqstest"
	"github.com/outboxkit/outbox-go/relay"
	relaysns "github.com/outboxkit/outbox-go/relay/sns"
)

// The code that meets an outage is that of relay/sqs, whose tests have an outage too.
func TestNothingIsLostWhileTheServerIsKilled(t *testing.T) {
	relaytest.Prove(t, broker(t, "counted.fifo"))
}

// broker is a server that can be killed, with a topic. The client retries as it does by default.
func broker(t *testing.T, topic string) relaytest.Broker {
	t.Helper()
	addr, dir, server := process(t, topic)
	return relaytest.Broker{
		Addr: addr, Topic: snstest.Prefix + topic, Server: server, Deduplicates: true,
		Connect: func(t testing.TB, addr string) relay.Publisher {
			return publisher(t, "http://"+addr, func(o *sns.Options) { o.Retryer = retry.NewStandard() })
		},
		Stored: func(t testing.TB) (all []relaytest.Stored) {
			list, err := sqstest.Stored(dir, topic)
			require.NoError(t, err)
			for _, m := range list {
				all = append(all, relaytest.Stored{ID: m.Attributes[relaysns.AttributeMessageID], Body: []byte(m.Body)})
			}
			return all
		},
	}
}
