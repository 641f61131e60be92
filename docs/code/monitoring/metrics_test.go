package monitoring_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
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

func TestTheTablesOfMetricsAreWhatIsRegistered(t *testing.T) {
	t.Parallel()
	plain, labelled := gather(t), gather(t, outboxprom.WithEventLabels(1))
	maps.Copy(plain, gatherRelay(t))
	var names, otel []string
	for _, row := range table(t, reference, "Prometheus", "OpenTelemetry", "type") {
		name := codes(row[0])[0]
		names = append(names, name)
		family := plain[name]
		require.NotNil(t, family, "%s is in the table and is not registered", name)
		require.Equal(t, strings.ToLower(family.GetType().String()), row[2], name)
		require.Equal(t, labelsOf(name, family, labelled[name]), row[3], name)
		require.NotEmpty(t, row[4], name)
		otel = append(otel, codes(row[1])[0])
		stem := strings.ReplaceAll(codes(row[1])[0], ".", "_")
		require.Contains(t, []string{stem, stem + "_total", stem + "_seconds"}, name)
	}
	require.Len(t, names, len(plain), "each metric has one row")
	for name := range plain {
		require.Contains(t, names, name, "it is registered and not in the table")
	}
	for _, name := range specified {
		require.Contains(t, otel, "outbox."+strings.TrimSuffix(name, ".ms"), "it is in the specification")
	}
}

// ofKind have labels also when events have none: the kinds are those of rules.
var ofKind = []string{"outbox_fleetwide_share", "outbox_kind_late_age_seconds", "outbox_kind_pause_age_seconds"}

// labelsOf are the labels of a metric, as the tables call them. The second family is that
// of an outbox whose events have labels.
func labelsOf(name string, plain, labelled *dto.MetricFamily) string {
	switch {
	case slices.Contains(ofKind, name) && len(plain.GetMetric()[0].GetLabel()) > 0:
		return "kind"
	case strings.HasPrefix(name, "outbox_relay_") && len(plain.GetMetric()[0].GetLabel()) > 0:
		return "topic"
	case labelled != nil && len(labelled.GetMetric()[0].GetLabel()) > 0:
		return "event"
	default:
		return "–"
	}
}

func TestTheCostOfAPairOfTypesIsAsTheDocumentSays(t *testing.T) {
	t.Parallel()
	n := 0
	for name, family := range gather(t, outboxprom.WithEventLabels(1)) {
		m := family.GetMetric()[0]
		switch {
		case len(m.GetLabel()) == 0 || slices.Contains(ofKind, name):
		case m.GetHistogram() != nil:
			n += len(m.GetHistogram().GetBucket()) + 3 // +Inf, _sum, _count
		default:
			n++
		}
	}
	text, err := os.ReadFile(reference)
	require.NoError(t, err)
	require.Contains(t, string(text), fmt.Sprintf("costs %d series", n))
}
