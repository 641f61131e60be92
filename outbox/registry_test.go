package outbox_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
)

func noop(context.Context, outbox.Envelope) error { return nil }

func TestRegistryRoutesByTheExactPair(t *testing.T) {
	t.Parallel()
	r := outbox.NewRegistry()
	require.NoError(t, r.Register(
		outbox.On("Order", "Placed", outbox.Handle(noop)),
		outbox.On("", "Placed", outbox.Handle(noop)),
	))
	for _, tc := range []struct {
		aggregate outbox.AggregateType
		event     outbox.EventType
		found     bool
	}{
		{"Order", "Placed", true},
		{outbox.Global, "Placed", true},
		{"order", "Placed", false},
		{"Order", "placed", false},
		{"Order", "*", false},
		{"", "Placed", false},
	} {
		_, found := r.ListenerFor(tc.aggregate, tc.event)
		require.Equal(t, tc.found, found, "%s/%s", tc.aggregate, tc.event)
	}
}

func TestRegistryRefusesDuplicatesAllOrNone(t *testing.T) {
	t.Parallel()
	r := outbox.NewRegistry()
	require.NoError(t, r.Register(outbox.On("Order", "Placed", outbox.Handle(noop))))
	err := r.Register(outbox.On("Order", "New", outbox.Handle(noop)), outbox.On("Order", "Placed", outbox.Handle(noop)))
	require.ErrorIs(t, err, outbox.ErrDuplicateListener)
	require.ErrorContains(t, err, "Order/Placed")
	require.Equal(t, 1, r.Len(), "nothing of a refused call is registered")
	require.ErrorIs(t, r.Register(outbox.On("A", "B", outbox.Handle(noop)), outbox.On("A", "B", outbox.Handle(noop))), outbox.ErrDuplicateListener)
}

func TestRegistryNamesWhatIsWrongWithABinding(t *testing.T) {
	t.Parallel()
	var nilFunc outbox.ListenerFunc
	r := outbox.NewRegistry()
	for want, b := range map[string]outbox.Binding{
		"binding.EventType is required": outbox.On("A", "", outbox.Handle(noop)),
		"binding.Listener is nil":       outbox.On("A", "B", nil),
		"(for A/C)":                     outbox.On("A", "C", nilFunc),
		"(for A/D)":                     outbox.On("A", "D", outbox.Handle(nil)),
		"(for A/E)":                     outbox.NewTopic[int]("A", "E").Listen(nil),
		"the limit is 128":              outbox.On("A", outbox.EventType(strings.Repeat("x", 129)), outbox.Handle(noop)),
		"the limit is 64":               outbox.On(outbox.AggregateType(strings.Repeat("x", 65)), "B", outbox.Handle(noop)),
	} {
		require.ErrorContains(t, r.Register(b), want)
	}
	require.Zero(t, r.Len())
}
