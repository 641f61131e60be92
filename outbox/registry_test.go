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
		outbox.On("Order", "Placed", outbox.ListenerFunc(noop)),
		outbox.On("", "Placed", outbox.ListenerFunc(noop)),
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
	require.NoError(t, r.Register(outbox.On("Order", "Placed", outbox.ListenerFunc(noop))))
	err := r.Register(outbox.On("Order", "New", outbox.ListenerFunc(noop)), outbox.On("Order", "Placed", outbox.ListenerFunc(noop)))
	require.ErrorIs(t, err, outbox.ErrDuplicateListener)
	require.ErrorContains(t, err, "Order/Placed")
	require.Equal(t, 1, r.Len(), "nothing of a refused call is registered")
	require.ErrorIs(t, r.Register(outbox.On("A", "B", outbox.ListenerFunc(noop)), outbox.On("A", "B", outbox.ListenerFunc(noop))), outbox.ErrDuplicateListener)
}

func TestRegistryNamesWhatIsWrongWithABinding(t *testing.T) {
	t.Parallel()
	var nilFunc outbox.ListenerFunc
	r := outbox.NewRegistry()
	for want, b := range map[string]outbox.Binding{
		"binding.EventType is required": outbox.On("A", "", outbox.ListenerFunc(noop)),
		"binding.Listener is nil":       outbox.On("A", "B", nil),
		"(for A/C)":                     outbox.On("A", "C", nilFunc),
		"(for A/D)":                     outbox.On("A", "D", outbox.ListenerFunc(nil)),
		"(for A/E)":                     outbox.NewTopic[int]("A", "E").Listen(nil),
		"the limit is 128":              outbox.On("A", outbox.EventType(strings.Repeat("x", 129)), outbox.ListenerFunc(noop)),
		"the limit is 64":               outbox.On(outbox.AggregateType(strings.Repeat("x", 65)), "B", outbox.ListenerFunc(noop)),
	} {
		require.ErrorContains(t, r.Register(b), want)
	}
	require.Zero(t, r.Len())
}

func TestListenersOfOnePairNeedNamesOfTheirOwn(t *testing.T) {
	t.Parallel()
	on := func(name string) outbox.Binding {
		return outbox.On("A", "B", outbox.ListenerFunc(noop), outbox.Named(name))
	}
	for name, tt := range map[string]struct {
		bindings []outbox.Binding
		problem  string
	}{
		"two names":               {[]outbox.Binding{on("a"), on("b")}, ""},
		"names of two pairs":      {[]outbox.Binding{on("a"), outbox.On("A", "C", outbox.ListenerFunc(noop), outbox.Named("a"))}, ""},
		"the same name":           {[]outbox.Binding{on("a"), on("b"), on("a")}, `outbox: duplicate listener for A/B: another one has the name "a"; give each listener of a pair its own name with outbox.Named`},
		"no names":                {[]outbox.Binding{on(""), on("")}, "duplicate listener for A/B: neither has a name"},
		"none beside names":       {[]outbox.Binding{on("a"), on("b"), on("")}, "duplicate listener for A/B: the others have names, such as a"},
		"a name beside one of no": {[]outbox.Binding{on(""), on("a")}, "duplicate listener for A/B: the other one has no name"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			together, apart := outbox.NewRegistry(), outbox.NewRegistry()
			errs := []error{together.Register(tt.bindings...), nil}
			for _, b := range tt.bindings {
				errs[1] = apart.Register(b)
			}
			for _, err := range errs {
				if tt.problem == "" {
					require.NoError(t, err)
					continue
				}
				require.ErrorIs(t, err, outbox.ErrDuplicateListener)
				require.ErrorContains(t, err, tt.problem)
			}
			if tt.problem == "" {
				require.Equal(t, len(tt.bindings), together.Len())
			} else {
				require.Zero(t, together.Len())
				require.Equal(t, len(tt.bindings)-1, apart.Len())
			}
		})
	}
}

func TestNamesOfListenersAreChecked(t *testing.T) {
	t.Parallel()
	for name, problem := range map[string]string{
		strings.Repeat("ü", 64): "",
		"mail to customers":     "",
		strings.Repeat("x", 65): "binding.Name is 65 characters long; the limit is 64",
		"a\nb":                  "binding.Name has a control character at offset 1; use printable characters",
		"\x00":                  "binding.Name has a control character at offset 0",
		"a\xff":                 "binding.Name is not valid UTF-8",
	} {
		err := outbox.NewTopic[int]("A", "B").Listen(func(context.Context, int, outbox.Envelope) error { return nil }, outbox.Named(name)).Validate()
		if problem == "" {
			require.NoError(t, err)
			continue
		}
		var field *outbox.FieldError
		require.ErrorAs(t, err, &field)
		require.ErrorContains(t, err, problem)
	}
}
