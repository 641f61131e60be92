package relay_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/relay"
)

// events are envelopes whose keys and ids are given as key/id.
func events(list ...string) (batch []outbox.Envelope) {
	for i, e := range list {
		env := placed.Envelope(e[:1], i)
		env.EventID = e[2:]
		batch = append(batch, env)
	}
	return batch
}

// newRelay makes a relay with one route.
func newRelay(t *testing.T, b relay.Publisher, route relay.Route) *relay.Relay {
	t.Helper()
	route.Kinds = []outbox.EventKind{placed.Kind()}
	r, err := relay.New(relay.Config{Publisher: b, Source: "/orders", Routes: []relay.Route{route}})
	require.NoError(t, err)
	return r
}

// deferral is for how long an error defers its event.
func deferral(err error) (delay time.Duration, deferred bool) {
	var decided *outbox.OutcomeError
	if !errors.As(err, &decided) || decided.Outcome != outbox.OutcomeDeferred {
		return 0, false
	}
	return decided.Delay, true
}

// deferred are the indexes of the events that are deferred.
func deferred(errs []error) (list []int) {
	for i, err := range errs {
		if _, is := deferral(err); is {
			list = append(list, i)
		}
	}
	return list
}

func TestARouteThatFailsHoldsTheRestOfItsKey(t *testing.T) {
	unknown := events("a/1")[0]
	unknown.EventType = "Unknown"
	for name, tc := range map[string]struct {
		topic string
		err   error
		first outbox.Envelope
		want  error
	}{
		"an error":  {err: errors.New("no region"), first: events("a/1")[0]},
		"no topic":  {first: events("a/1")[0], want: relay.ErrRefused},
		"no route":  {topic: "orders", first: unknown, want: relay.ErrUnroutable},
		"not found": {err: relay.ErrUnroutable, first: events("a/1")[0], want: relay.ErrUnroutable},
	} {
		t.Run(name, func(t *testing.T) {
			b := &broker{}
			r := newRelay(t, b, relay.Route{TopicOf: func(env outbox.Envelope) (string, error) {
				if env.EventID == "1" {
					return tc.topic, tc.err
				}
				return "orders", nil
			}})
			results := r.Publish(t.Context(), append([]outbox.Envelope{tc.first}, events("a/2", "b/3", "a/4")...))
			require.ErrorContains(t, results[0], "relay: publishing event 1 to ")
			if tc.want != nil {
				require.ErrorIs(t, results[0], tc.want)
			}
			if tc.err != nil {
				require.ErrorIs(t, results[0], tc.err)
			}
			require.Equal(t, []int{1, 3}, deferred(results))
			require.Equal(t, []string{"3"}, b.ids(), "another key does not wait")
		})
	}
}

// A key is ordered whatever the topics of its events are.
func TestTopicsOfOneKeyWaitForEachOther(t *testing.T) {
	b := &broker{refuse: func(m relay.Message) error {
		if eventOf(m) == "2" {
			return errors.New("boom")
		}
		return nil
	}}
	r := newRelay(t, b, relay.Route{TopicOf: func(env outbox.Envelope) (string, error) { return "topic-" + env.EventID, nil }})
	results := r.Publish(t.Context(), events("a/1", "a/2", "a/3", "b/4"))
	require.Equal(t, []int{2}, deferred(results))
	require.ErrorContains(t, results[1], `relay: publishing event 2 to "topic-2": boom`)
	require.Equal(t, []string{"1", "4"}, b.ids())
	require.Equal(t, "topic-4", b.got[1].Topic)
}

func TestKeyOfGivesTheKey(t *testing.T) {
	b := &broker{}
	r := newRelay(t, b, relay.Route{Topic: "orders", KeyOf: func(env outbox.Envelope) string { return env.Headers["customer"] }})
	batch := events("a/1", "b/2", "c/3")
	for i, customer := range []string{"x", "x", ""} {
		batch[i].Headers = map[string]string{"customer": customer}
	}
	require.Empty(t, deferred(r.Publish(t.Context(), batch)))
	require.Equal(t, 2, b.calls, "the second event of x has a round of its own")
	require.Equal(t, []string{"1", "3", "2"}, b.ids())
	require.Equal(t, []string{"x", "", "x"}, []string{b.got[0].Key, b.got[1].Key, b.got[2].Key})
	require.Contains(t, b.got[0].Attributes, relay.Attribute{Name: "partitionkey", Value: "x"})
	require.Contains(t, b.got[0].Attributes, relay.Attribute{Name: "subject", Value: "a"})
}

// ending is a broker that takes the first call, and ends its context.
type ending struct {
	*broker
	end func(ctx context.Context)
}

func (e ending) Publish(ctx context.Context, messages []relay.Message) []error {
	defer e.end(ctx)
	return e.broker.Publish(ctx, messages)
}

func TestNothingIsPublishedAfterTheContextHasEnded(t *testing.T) {
	t.Run("canceled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		b := &broker{}
		r := newRelay(t, ending{b, func(context.Context) { cancel() }}, relay.Route{Topic: "orders"})
		results := r.Publish(ctx, events("a/1", "a/2", "a/3"))
		require.Equal(t, 1, b.calls)
		require.NoError(t, results[0])
		require.ErrorIs(t, results[1], context.Canceled)
		require.ErrorIs(t, results[2], context.Canceled)
	})
	t.Run("its time is up", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		b := &broker{}
		r := newRelay(t, ending{b, func(ctx context.Context) { <-ctx.Done() }}, relay.Route{Topic: "orders"})
		results := r.Publish(ctx, events("a/1", "a/2", "a/3"))
		require.Equal(t, 1, b.calls)
		require.NoError(t, results[0])
		require.Equal(t, []int{1, 2}, deferred(results))
	})
}

// What the broker said about a message counts, also when the context has ended since.
func TestARefusalAtTheEndOfTheContextIsARefusal(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	b := &broker{refuse: func(relay.Message) error { return fmt.Errorf("%w: too large", relay.ErrRefused) }}
	r := newRelay(t, ending{b, func(context.Context) { cancel() }}, relay.Route{Topic: "orders"})
	require.ErrorIs(t, r.Publish(ctx, events("a/1"))[0], relay.ErrRefused)
}
