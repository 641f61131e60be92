package outboxfx

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
)

func TestAGateLetsAllThroughOrNone(t *testing.T) {
	t.Parallel()
	gauge := func(name string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: name})
	}
	registry := prometheus.NewRegistry()
	taken := gauge("b")
	require.NoError(t, registry.Register(taken))

	g := &gate{}
	g.MustRegister(gauge("a"), gauge("b"), gauge("c"))
	require.Error(t, g.open(registry))
	families, err := registry.Gather()
	require.NoError(t, err)
	require.Len(t, families, 1, "a is taken off again")

	require.True(t, registry.Unregister(taken))
	require.NoError(t, g.open(registry))
	families, err = registry.Gather()
	require.NoError(t, err)
	require.Len(t, families, 3)
	late := gauge("d")
	require.NoError(t, g.Register(late), "an open gate is the registry")
	require.True(t, g.Unregister(late))
	require.Panics(t, func() { g.MustRegister(gauge("a")) })
}
