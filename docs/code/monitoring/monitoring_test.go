// Package monitoring_test holds docs/reference/metrics.md, docs/how-to/metrics-and-alerts.md,
// the alert rules and the dashboard to what the code does.
package monitoring_test

import (
	"context"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/adapters/prometheus"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/relay"
)

// The pages: what is exported, and the alerts.
const (
	reference = "../../reference/metrics.md"
	alerts    = "../../how-to/metrics-and-alerts.md"
)

// polled is a table with a poller, so that every metric is there.
type polled struct{}

func (polled) Stats(context.Context) (outbox.Stats, error) {
	return outbox.Stats{PollInterval: 1, Shares: []outbox.OwnShare{{Kind: outbox.EventKind{EventType: "Placed"}, Parts: 1, Of: 2}}, Late: []outbox.LateKind{{Kind: outbox.EventKind{EventType: "Placed"}}}, Paused: []outbox.Pause{{Kind: outbox.EventKind{EventType: "Placed"}}}}, nil
}

// gather registers everything there is and returns it by name.
func gather(t *testing.T, opts ...outboxprom.Option) map[string]*dto.MetricFamily {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	metrics, err := outboxprom.New(registry, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, metrics.Close()) })
	require.NoError(t, metrics.WatchTable(polled{}))
	metrics.HotEnqueued(outbox.EventKind{AggregateType: "Order", EventType: "Placed"})
	return families(t, registry)
}

// gatherRelay registers the metrics of a relay and returns them by name.
func gatherRelay(t *testing.T) map[string]*dto.MetricFamily {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	metrics, err := outboxprom.NewRelayMetrics(registry)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, metrics.Close()) })
	metrics.Published(relay.Published{Topic: "orders"})
	return families(t, registry)
}

func families(t *testing.T, registry *prometheus.Registry) map[string]*dto.MetricFamily {
	t.Helper()
	list, err := registry.Gather()
	require.NoError(t, err)
	found := map[string]*dto.MetricFamily{}
	for _, family := range list {
		found[family.GetName()] = family
	}
	return found
}

// series are the names that a query may use.
func series(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	all := gather(t)
	maps.Copy(all, gatherRelay(t))
	for name, family := range all {
		if family.GetType() == dto.MetricType_HISTOGRAM {
			names[name+"_bucket"], names[name+"_sum"], names[name+"_count"] = true, true, true
		} else {
			names[name] = true
		}
	}
	return names
}

var (
	metricPattern = regexp.MustCompile(`\boutbox_[a-zA-Z0-9_]+`)
	// kindLabels are what OpenTelemetry's exporters call the labels of an event;
	// they begin as the metrics do.
	kindLabels = []string{"outbox_event_type", "outbox_aggregate_type", "outbox_listener"}
)

// metricsOf are the metrics that a query names, each as often as it does.
func metricsOf(query string) []string {
	return slices.DeleteFunc(metricPattern.FindAllString(query, -1), func(name string) bool {
		return slices.Contains(kindLabels, name)
	})
}

// requireMetrics fails unless a query names metrics and all of them exist.
func requireMetrics(t *testing.T, known map[string]bool, query string) {
	t.Helper()
	names := metricsOf(query)
	require.NotEmpty(t, names, "%q names no metric of the outbox", query)
	for _, name := range names {
		require.True(t, known[name], "%q names %s, which outboxprom does not register", query, name)
	}
}

// table returns the rows of the tables of a page whose header begins with the given
// cells, cell by cell.
func table(t *testing.T, page string, header ...string) [][]string {
	t.Helper()
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	var rows [][]string
	inside := false
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			inside = false
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case inside && !strings.HasPrefix(line, "|---"):
			rows = append(rows, cells)
		case !inside && len(cells) >= len(header):
			inside = true
			for i := range header {
				inside = inside && cells[i] == header[i]
			}
		}
	}
	require.NotEmpty(t, rows, "%s has no table that begins with %v", page, header)
	return rows
}

// codes are the texts between backticks.
func codes(cell string) (found []string) {
	for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cell, -1) {
		found = append(found, m[1])
	}
	return found
}
