package outbox_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// deliver runs one delivery through interceptors, and returns what it became.
func deliver(t *testing.T, listener outbox.Listener, interceptors ...outbox.Interceptor) outbox.Delivery {
	t.Helper()
	store := outboxtest.NewStore()
	ob, err := outbox.New(outbox.Config{DB: store.DB(), Store: store, Interceptors: interceptors, Logger: quiet})
	require.NoError(t, err)
	if listener != nil {
		require.NoError(t, ob.Register(outbox.On("", "Said", listener)))
	}
	env := said("e")
	env.AggregateType = outbox.Global
	got, err := ob.Deliver(t.Context(), env)
	require.NoError(t, err)
	require.NoError(t, ob.Close(t.Context()))
	return got
}

// trace records the order of what runs.
type trace []string

func (tr *trace) interceptor(name string) outbox.Interceptor {
	return func(next outbox.Listener) outbox.Listener {
		return outbox.ListenerFunc(func(ctx context.Context, env outbox.Envelope) error {
			*tr = append(*tr, name+" in")
			err := next.OnEvent(ctx, env)
			if err != nil {
				*tr = append(*tr, name+" out: "+err.Error())
			} else {
				*tr = append(*tr, name+" out")
			}
			return err
		})
	}
}

func (tr *trace) listener(err error) outbox.Listener {
	return outbox.ListenerFunc(func(context.Context, outbox.Envelope) error {
		*tr = append(*tr, "listener")
		return err
	})
}

func TestInterceptorsRunInOrderAndBack(t *testing.T) {
	t.Parallel()
	var tr trace
	got := deliver(t, tr.listener(nil), tr.interceptor("1"), tr.interceptor("2"))
	require.Equal(t, trace{"1 in", "2 in", "listener", "2 out", "1 out"}, tr)
	require.Equal(t, outbox.StatusDone, got.Status)
}

func TestBeforeFailsTheDeliveryAndSkipsTheRest(t *testing.T) {
	t.Parallel()
	var tr trace
	refusal := errors.New("not allowed")
	got := deliver(t, tr.listener(nil), tr.interceptor("1"),
		outbox.Before(func(context.Context, outbox.Envelope) error { return refusal }), tr.interceptor("3"))
	require.Equal(t, trace{"1 in", "1 out: not allowed"}, tr)
	require.Equal(t, outbox.StatusRetry, got.Status)
	require.ErrorIs(t, got.Err, refusal)
}

func TestAfterSeesTheErrorAndCannotChangeTheOutcome(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	for name, tc := range map[string]struct {
		listener outbox.Listener
		want     error
		status   outbox.Status
	}{
		"success":    {outbox.ListenerFunc(noop), nil, outbox.StatusDone},
		"failure":    {outbox.ListenerFunc(func(context.Context, outbox.Envelope) error { return boom }), boom, outbox.StatusRetry},
		"panic":      {outbox.ListenerFunc(func(context.Context, outbox.Envelope) error { panic(boom) }), boom, outbox.StatusRetry},
		"unroutable": {nil, outbox.ErrUnroutable, outbox.StatusNew},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var seen []error
			after := outbox.After(func(_ context.Context, env outbox.Envelope, err error) {
				require.Equal(t, "e", env.EventID)
				seen = append(seen, err)
				panic("an After that panics")
			})
			got := deliver(t, tc.listener, after)
			require.Len(t, seen, 1)
			require.ErrorIs(t, seen[0], tc.want)
			require.Equal(t, tc.status, got.Status)
		})
	}
}

func TestARawInterceptorDecidesTheOutcome(t *testing.T) {
	t.Parallel()
	swallow := func(next outbox.Listener) outbox.Listener {
		return outbox.ListenerFunc(func(ctx context.Context, env outbox.Envelope) error {
			_ = next.OnEvent(ctx, env)
			return outbox.Dead(errors.New("the interceptor says so"))
		})
	}
	got := deliver(t, outbox.ListenerFunc(noop), swallow)
	require.Equal(t, outbox.StatusDead, got.Status)

	var tr trace
	panicking := func(outbox.Listener) outbox.Listener {
		return outbox.ListenerFunc(func(context.Context, outbox.Envelope) error { panic("middleware") })
	}
	got = deliver(t, outbox.ListenerFunc(noop), tr.interceptor("1"), panicking)
	require.Equal(t, trace{"1 in", "1 out: panic at interceptor_test.go:117: middleware"}, tr, "a panic further in is an error further out")
	require.Equal(t, outbox.StatusRetry, got.Status)
	var p *outbox.PanicError
	require.ErrorAs(t, got.Err, &p)
	require.NotEmpty(t, p.Stack)
}

func TestNilInterceptorsAreRefused(t *testing.T) {
	t.Parallel()
	store := outboxtest.NewStore()
	_, err := outbox.New(outbox.Config{
		DB: store.DB(), Store: store,
		Interceptors: []outbox.Interceptor{nil, outbox.Before(nil), outbox.After(nil), func(outbox.Listener) outbox.Listener { return nil }},
	})
	for _, want := range []string{"Interceptors[0] is nil", "Interceptors[1] is nil", "Interceptors[2] is nil", "Interceptors[3] returned no listener"} {
		require.ErrorContains(t, err, want)
	}
}
