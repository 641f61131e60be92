package outbox_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// An interceptor may hand an event to the listener of another type.
func TestAnEventThatAnInterceptorRenamesGoesToItsOwnListener(t *testing.T) {
	t.Parallel()
	rename := func(next outbox.Listener) outbox.Listener {
		return outbox.ListenerFunc(func(ctx context.Context, env outbox.Envelope) error {
			env.EventType = "Other"
			return next.OnEvent(ctx, env)
		})
	}
	var got sizes
	e := build(t, outbox.Config{Interceptors: []outbox.Interceptor{rename}}, nil)
	require.NoError(t, e.Register(
		outbox.On("", "Said", outbox.BatchListener(outbox.BatchOptions{Size: 1}, func(context.Context, []outbox.Envelope) ([]error, error) {
			return nil, outbox.Dead(errors.New("the wrong listener"))
		})),
		outbox.On("", "Other", outbox.BatchListener(outbox.BatchOptions{Size: 1}, got.listen)),
	))
	require.NoError(t, e.Start(t.Context()))
	e.write(said("e"))
	e.await("e", outbox.StatusDone)
	require.Equal(t, 1, got.events())
}

func TestOrderedDeliversBatchesOfOneInOrder(t *testing.T) {
	t.Parallel()
	var got []string
	want := named("e", 50)
	store := written(t, want...)
	e := startBatches(t, outbox.Config{Store: store, Mode: outbox.Ordered{}}, outbox.BatchOptions{Size: 10, Wait: time.Hour},
		func(_ context.Context, batch []outbox.Envelope) ([]error, error) {
			require.Len(t, batch, 1)
			got = append(got, sortedIDs(batch)...)
			return nil, nil
		})
	e.await(want[49], outbox.StatusDone)
	require.NoError(t, e.Close(t.Context()))
	require.Equal(t, want, got)
}

func TestDrainDeliversBatchesOfOne(t *testing.T) {
	t.Parallel()
	var s sizes
	ds := outboxtest.Drain(t, outbox.Config{Store: written(t, "a", "b"), Logger: quiet},
		outbox.On("", "Said", outbox.BatchListener(outbox.BatchOptions{Size: 10, Wait: time.Hour}, s.listen)))
	require.Len(t, ds, 2)
	require.Equal(t, []int{1, 1}, s.calls)
}

// panicking is a registry that panics.
type panicking struct{}

func (panicking) ListenerFor(outbox.AggregateType, outbox.EventType) (outbox.Listener, bool) {
	panic("no registry")
}

// careless is a registry that takes any listener.
type careless struct{ outbox.Listener }

func (c careless) ListenerFor(outbox.AggregateType, outbox.EventType) (outbox.Listener, bool) {
	return c.Listener, true
}

func TestRegistriesOfTheUsersOwn(t *testing.T) {
	t.Parallel()
	var s sizes
	for name, tt := range map[string]struct {
		registry outbox.ListenerRegistry
		want     outbox.Status
		text     string
	}{
		"panics":            {panicking{}, outbox.StatusRetry, "no registry"},
		"bad batch options": {careless{outbox.BatchListener(outbox.BatchOptions{Concurrency: -1}, s.listen)}, outbox.StatusRetry, "BatchOptions.Size is 0"},
		"batches":           {careless{outbox.BatchListener(outbox.BatchOptions{Size: 3, Wait: time.Hour}, s.listen)}, outbox.StatusDone, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := start(t, outbox.Config{Registry: tt.registry, RetryPolicy: slowRetries}, nil)
			e.write(saidAll("a", "b", "c")...)
			require.Contains(t, e.await("a", tt.want).LastError, tt.text)
			e.await("c", tt.want)
			require.NoError(t, e.Close(t.Context()))
		})
	}
}
