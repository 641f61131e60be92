package relaysqs_test

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/relaytest"
	"github.com/outboxkit/outbox-go/internal/testing/sqstest"
	"github.com/outboxkit/outbox-go/relay"
	relaysqs "github.com/outboxkit/outbox-go/relay/sqs"
)

func TestNothingIsLostWhileTheServerIsKilled(t *testing.T) {
	relaytest.Prove(t, broker(t, "counted.fifo"))
}

func TestTheRelayCatchesUpAfterAnOutage(t *testing.T) { relaytest.Outage(t, broker(t, "counted")) }

// broker is a server that can be killed, with a queue. The client retries as it does by default.
func broker(t *testing.T, queue string) relaytest.Broker {
	t.Helper()
	addr, dir, server := process(t, queue)
	return relaytest.Broker{
		Addr: addr, Topic: queue, Server: server, Deduplicates: queue == "counted.fifo",
		Connect: func(t testing.TB, addr string) relay.Publisher {
			return publisher(t, "http://"+addr, func(o *sqs.Options) { o.Retryer = retry.NewStandard() })
		},
		Stored: func(t testing.TB) (all []relaytest.Stored) {
			list, err := sqstest.Stored(dir, queue)
			require.NoError(t, err)
			for _, m := range list {
				all = append(all, relaytest.Stored{ID: m.Attributes[relaysqs.AttributeMessageID], Body: []byte(m.Body)})
			}
			return all
		},
	}
}
