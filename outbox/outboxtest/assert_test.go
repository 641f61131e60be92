package outboxtest_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

func TestEventMatches(t *testing.T) {
	t.Parallel()
	store := outboxtest.NewStore()
	write(t, store, outbox.Envelope{
		EventType: "Placed", AggregateType: "Order", AggregateID: "o-1", TenantID: "acme",
		Headers: map[string]string{"source": "api", "v": "2"}, Payload: outbox.RawJSON(`{"b":[1.0,"é"],"a":{"x":null}}`),
	})
	for name, test := range map[string]struct {
		want outboxtest.Event
		same bool
	}{
		"nothing is compared":          {outboxtest.Event{}, true},
		"all fields":                   {outboxtest.Event{Type: "Placed", Aggregate: "Order", AggregateID: "o-1", TenantID: "acme", Headers: map[string]string{"v": "2"}}, true},
		"another type":                 {outboxtest.Event{Type: "Paid"}, false},
		"another aggregate":            {outboxtest.Event{Aggregate: "Invoice"}, false},
		"another aggregate id":         {outboxtest.Event{AggregateID: "o-2"}, false},
		"another tenant":               {outboxtest.Event{TenantID: "evil"}, false},
		"another header":               {outboxtest.Event{Headers: map[string]string{"v": "3"}}, false},
		"a header that is not there":   {outboxtest.Event{Headers: map[string]string{"w": ""}}, false},
		"payload as JSON text":         {outboxtest.Event{Payload: json.RawMessage(`{"a":{"x":null},"b":[1,"\u00e9"]}`)}, true},
		"payload as outbox.Payload":    {outboxtest.Event{Payload: outbox.RawJSON(`{"a": {"x": null}, "b": [1, "é"]}`)}, true},
		"payload as a value":           {outboxtest.Event{Payload: map[string]any{"a": map[string]any{"x": nil}, "b": []any{1, "é"}}}, true},
		"another payload":              {outboxtest.Event{Payload: map[string]any{"a": 1}}, false},
		"a payload of no JSON":         {outboxtest.Event{Payload: json.RawMessage(`{`)}, false},
		"a payload that is no payload": {outboxtest.Event{Payload: func() {}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fake := newFakeT(t)
			require.Equal(t, test.same, outboxtest.AssertEmitted(fake, store, test.want))
			require.Equal(t, test.same, len(fake.failures) == 0)
		})
	}
}

func TestEventMatchesBytes(t *testing.T) {
	t.Parallel()
	store := outboxtest.NewStore()
	written := outbox.Bytes("a/b", []byte{0, 0xff})
	write(t, store, outbox.Envelope{EventType: "Moved", Payload: written})
	require.True(t, outboxtest.AssertEmitted(newFakeT(t), store, outboxtest.Event{Payload: written}))
	for _, other := range []any{outbox.Bytes("a/c", []byte{0, 0xff}), outbox.Bytes("a/b", []byte{0}), outbox.RawJSON(written.String()), []byte{0, 0xff}} {
		fake := newFakeT(t)
		require.False(t, outboxtest.AssertEmitted(fake, store, outboxtest.Event{Payload: other}))
		require.Contains(t, strings.Join(fake.failures, "\n"), `a/b "AP8="`)
	}
}

func TestAssertEmittedShowsTheDifference(t *testing.T) {
	t.Parallel()
	store := outboxtest.NewStore()
	for _, id := range []string{"a", "b", "c", "d"} {
		write(t, store, said(id))
	}
	fake := newFakeT(t)
	require.False(t, outboxtest.AssertEmitted(fake, store,
		outboxtest.Event{Payload: "a"}, outboxtest.Event{Payload: "x"}, outboxtest.Event{Payload: "c"},
		outboxtest.Event{Payload: "d"}, outboxtest.Event{Type: "Said", Headers: map[string]string{"k": "v"}}))
	require.Equal(t, strings.Join([]string{
		`the emitted events are not those expected (- expected, + emitted):`,
		`  __GLOBAL__/Said "a"`,
		`- */* * "x"`,
		`+ __GLOBAL__/Said "b"`,
		`  __GLOBAL__/Said "c"`,
		`  __GLOBAL__/Said "d"`,
		`- */Said * headers=map[k:v] *`,
	}, "\n"), strings.Join(fake.failures, ""))

	fake = newFakeT(t)
	require.False(t, outboxtest.AssertNothingEmitted(fake, store))
	require.Len(t, fake.failures, 1)
	require.True(t, outboxtest.AssertNothingEmitted(t, outboxtest.NewRecorder()))
}

func TestAssertPendingLeavesOutWhatIsOver(t *testing.T) {
	t.Parallel()
	store := outboxtest.NewStore()
	delayed := said("delayed")
	delayed.DeliverAfter = time.Hour
	write(t, store, delayed, said("a"), said("b"), said("c"))
	_, err := store.Mark(t.Context(), store.DB(), outbox.OutcomeDone, []outbox.Mark{{EventID: "a"}})
	require.NoError(t, err)
	_, err = store.Mark(t.Context(), store.DB(), outbox.OutcomeDead, []outbox.Mark{{EventID: "c"}})
	require.NoError(t, err)
	outboxtest.AssertPending(t, store, store.DB(), outboxtest.Event{Payload: "b"}, outboxtest.Event{Payload: "delayed"})
	fake := newFakeT(t)
	require.False(t, outboxtest.AssertPending(fake, store, store.DB()))
	require.Contains(t, fake.failures[0], "the pending events")
}
