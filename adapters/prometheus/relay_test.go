package outboxprom_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	outboxprom "github.com/outboxkit/outbox-go/adapters/prometheus"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/relay"
)

// relayFigures are the values of a registry by name and labels.
func relayFigures(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	require.NoError(t, err)
	figures := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			key := family.GetName()
			for _, l := range m.GetLabel() {
				key += " " + l.GetValue()
			}
			figures[key] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetHistogram().GetSampleSum()
		}
	}
	return figures
}

func newRelayMetrics(t *testing.T, registry prometheus.Registerer, opts ...outboxprom.Option) *outboxprom.RelayMetrics {
	t.Helper()
	m, err := outboxprom.NewRelayMetrics(registry, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return m
}

func TestARelaysFiguresHaveTheirTopic(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewPedanticRegistry()
	m := newRelayMetrics(t, registry)
	require.Equal(t, map[string]float64{"outbox_relay_outage": 0}, relayFigures(t, registry))
	m.Publishing("orders", 20)
	m.Outage(true)
	m.Published(relay.Published{Topic: "orders", Acknowledged: 1, Unavailable: 2, Refused: 3, Unroutable: 4, Failed: 5, Duration: 2 * time.Second})
	want := map[string]float64{
		"outbox_relay_outage": 1, "outbox_relay_in_flight orders": 5, "outbox_relay_publish_duration_seconds orders": 2,
		"outbox_relay_acknowledged_total orders": 1, "outbox_relay_unavailable_total orders": 2,
		"outbox_relay_refused_total orders": 3, "outbox_relay_unroutable_total orders": 4, "outbox_relay_failed_total orders": 5,
	}
	require.Equal(t, want, relayFigures(t, registry))
	m.Outage(false)
	require.Zero(t, relayFigures(t, registry)["outbox_relay_outage"])
}

func TestTopicsBeyondTheLimitCountTogether(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewPedanticRegistry()
	m := newRelayMetrics(t, registry)
	for i := range 103 {
		m.Published(relay.Published{Topic: fmt.Sprintf("\xfftopic-%d", i), Acknowledged: 1})
	}
	figures := relayFigures(t, registry)
	require.InDelta(t, 1, figures["outbox_relay_acknowledged_total \uFFFDtopic-99"], 0)
	require.InDelta(t, 3, figures["outbox_relay_acknowledged_total other"], 0)
}

func TestRelaysOnOneRegistryNeedDifferentLabels(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewPedanticRegistry()
	labels := func(name string) outboxprom.Option {
		return outboxprom.WithConstLabels(prometheus.Labels{"relay": name})
	}
	first := newRelayMetrics(t, registry, labels("a"))
	newRelayMetrics(t, registry, labels("b"))
	_, err := outboxprom.NewRelayMetrics(registry, labels("a"))
	require.ErrorIs(t, err, outboxprom.ErrRegistered)
	require.ErrorContains(t, err, "give each relay a prefix")
	require.NoError(t, first.Close())
	again := newRelayMetrics(t, registry, labels("a"))
	require.NoError(t, first.Close(), "a second time, which leaves the new ones")
	again.Outage(true)
	require.InDelta(t, 1, relayFigures(t, registry)["outbox_relay_outage a"], 0)
}

func TestInvalidOptionsOfRelayMetrics(t *testing.T) {
	t.Parallel()
	var field *outbox.FieldError
	_, err := outboxprom.NewRelayMetrics(nil)
	require.ErrorAs(t, err, &field)
	require.Equal(t, "NewRelayMetrics.registerer", field.Field)
	_, err = outboxprom.NewRelayMetrics(prometheus.NewRegistry(), outboxprom.WithPrefix("_"), outboxprom.WithConstLabels(prometheus.Labels{"topic": "x"}))
	require.ErrorContains(t, err, "WithPrefix has no letter")
	require.ErrorContains(t, err, `WithConstLabels["topic"] is a label of NewRelayMetrics`)
}
