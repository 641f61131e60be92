package monitoring_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/adapters/prometheus"
)

// specified are the names that the specification and its successor give.
var specified = []string{
	"enqueue.hot", "enqueue.hot.dropped", "enqueue.hot.skipped.delayed", "enqueue.cold",
	"dispatch.success", "dispatch.failure", "dispatch.dead", "dispatch.deferred", "lease.lost",
	"queue.hot.depth", "queue.cold.depth", "lag.oldest.ms",
	"dispatch.latency", "listener.duration", "batch.size",
}

func TestTheTableOfMetricsIsWhatIsRegistered(t *testing.T) {
	t.Parallel()
	plain, labelled := gather(t), gather(t, outboxprom.WithEventLabels(1))
	var documented, names []string
	for _, row := range table(t, "document", "Prometheus") {
		name := codes(row[1])[0]
		names = append(names, name)
		documented = append(documented, codes(row[0])...)
		family := plain[name]
		require.NotNil(t, family, "%s is in the table and is not registered", name)
		require.Equal(t, strings.ToLower(family.GetType().String()), row[2], name)
		labels := "–"
		if len(labelled[name].GetMetric()[0].GetLabel()) > 0 {
			labels = "event"
		}
		require.Equal(t, labels, row[3], name)
		require.NotEmpty(t, row[4], name)
		for _, doc := range codes(row[0]) {
			stem := strings.TrimSuffix(strings.ReplaceAll(doc, ".", "_"), "_ms")
			require.Contains(t, []string{"outbox_" + stem, "outbox_" + stem + "_total", "outbox_" + stem + "_seconds"}, name)
		}
	}
	require.Len(t, names, len(plain), "each metric has one row")
	for name := range plain {
		require.Contains(t, names, name, "it is registered and not in the table")
	}
	require.ElementsMatch(t, specified, documented)
}

func TestTheTableOfTheRelaysMetricsIsWhatIsRegistered(t *testing.T) {
	t.Parallel()
	registered := gatherRelay(t)
	var names []string
	for _, row := range table(t, "relay", "Prometheus") {
		name := codes(row[1])[0]
		names = append(names, name)
		family := registered[name]
		require.NotNil(t, family, "%s is in the table and is not registered", name)
		require.Equal(t, strings.ToLower(family.GetType().String()), row[2], name)
		labels := "–"
		if len(family.GetMetric()[0].GetLabel()) > 0 {
			labels = "topic"
		}
		require.Equal(t, labels, row[3], name)
		stem := "outbox_" + strings.ReplaceAll(codes(row[0])[0], ".", "_")
		require.Contains(t, []string{stem, stem + "_total", stem + "_seconds"}, name)
	}
	require.Len(t, names, len(registered), "each metric has one row")
}

func TestTheCostOfAPairOfTypesIsAsTheDocumentSays(t *testing.T) {
	t.Parallel()
	n := 0
	for _, family := range gather(t, outboxprom.WithEventLabels(1)) {
		m := family.GetMetric()[0]
		switch {
		case len(m.GetLabel()) == 0:
		case m.GetHistogram() != nil:
			n += len(m.GetHistogram().GetBucket()) + 3 // +Inf, _sum, _count
		default:
			n++
		}
	}
	text, err := os.ReadFile(document)
	require.NoError(t, err)
	require.Contains(t, string(text), fmt.Sprintf("costs %d series", n))
}
