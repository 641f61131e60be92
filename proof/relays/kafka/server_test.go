package relaykafka_test

import (
	"context"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"
	"go.uber.org/goleak"

	"github.com/outboxkit/outbox-go/internal/testing/relaytest"
	relaykafka "github.com/outboxkit/outbox-go/relay/kafka"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cluster is kfake, an imitation of Kafka in this process, with one broker. It keeps its
// files, so it can be stopped and started again.
type cluster struct {
	*kfake.Cluster
	addr string
	opts []kfake.Opt
}

func start(t testing.TB, opts ...kfake.Opt) *cluster {
	t.Helper()
	t.Logf("broker: kfake, an imitation of Kafka up to version %s", kversion.Stable().VersionGuess())
	c := &cluster{addr: relaytest.FreeAddr(t)}
	_, text, err := net.SplitHostPort(c.addr)
	require.NoError(t, err)
	port, err := strconv.Atoi(text)
	require.NoError(t, err)
	c.opts = append(opts, kfake.NumBrokers(1), kfake.Ports(port), kfake.DataDir(t.TempDir()))
	c.Start(t)
	t.Cleanup(func() { c.Close() })
	return c
}

// Start starts the cluster on its files.
func (c *cluster) Start(t testing.TB) {
	t.Helper()
	var err error
	c.Cluster, err = kfake.NewCluster(c.opts...)
	require.NoError(t, err)
}

// outage is longer than a call of the proof may take: the client tries again by itself.
const outage = 5 * time.Second

// Kill stops the cluster. What was acknowledged is in its files.
func (c *cluster) Kill(testing.TB) { c.Close() }

// stored are the records of a topic from the beginning, in the order of each partition.
func (c *cluster) stored(t testing.TB, topic string, opts ...kgo.Opt) (list []*kgo.Record) {
	t.Helper()
	client, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(c.addr), kgo.ConsumeTopics(topic), kgo.KeepControlRecords()}, opts...)...)
	require.NoError(t, err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	ends, err := kadm.NewClient(client).ListEndOffsets(ctx, topic)
	require.NoError(t, err)
	left := map[int32]int64{} // the end of each partition that is not read yet
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			left[o.Partition] = o.Offset
		}
	})
	for len(left) > 0 {
		fetched := client.PollFetches(ctx)
		require.NoError(t, ctx.Err(), "the topic was not read in time")
		for _, r := range fetched.Records() {
			if !r.Attrs.IsControl() { // the end of a transaction
				list = append(list, r)
			}
			if r.Offset+1 >= left[r.Partition] {
				delete(left, r.Partition)
			}
		}
	}
	return list
}

// header is the value of a record's header.
func header(r *kgo.Record, key string) string {
	for _, h := range r.Headers {
		if h.Key == key {
			return string(h.Value)
		}
	}
	return ""
}

// ids are the events of records.
func ids(list []*kgo.Record) map[string]int {
	all := map[string]int{}
	for _, r := range list {
		all[header(r, "ce_id")]++
	}
	return all
}

func publisher(t testing.TB, c *cluster, opts ...kgo.Opt) *relaykafka.Publisher {
	t.Helper()
	p, err := relaykafka.New(relaykafka.Config{Brokers: []string{c.addr}, Options: opts})
	require.NoError(t, err)
	t.Cleanup(func() { _ = p.Close(context.Background()) })
	return p
}
