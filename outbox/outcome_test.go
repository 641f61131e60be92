package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// TestOutcomeOfIsWhatTheDispatcherDecides asks an interceptor what becomes of each
// answer, and compares that with what became of it.
func TestOutcomeOfIsWhatTheDispatcherDecides(t *testing.T) {
	t.Parallel()
	failure := errors.New("boom")
	last := outbox.DispatchOptions{MaxAttempts: 1}
	for name, tt := range map[string]struct {
		options outbox.DispatchOptions
		res     outbox.Result
		err     error
		want    outbox.Outcome
		status  outbox.Status
	}{
		"done":                      {want: outbox.OutcomeDone, status: outbox.StatusDone},
		"deferred":                  {res: outbox.RetryAfter(time.Hour), want: outbox.OutcomeDeferred, status: outbox.StatusNew},
		"given up":                  {res: outbox.Dead("no"), want: outbox.OutcomeDead, status: outbox.StatusDead},
		"failed":                    {err: failure, want: outbox.OutcomeRetry, status: outbox.StatusRetry},
		"failed, last attempt":      {options: last, err: failure, want: outbox.OutcomeDead, status: outbox.StatusDead},
		"failed with a delay":       {err: outbox.RetryAfterError(time.Hour, failure), want: outbox.OutcomeRetry, status: outbox.StatusRetry},
		"failed with a delay, last": {options: last, err: outbox.RetryAfterError(time.Hour, failure), want: outbox.OutcomeDead, status: outbox.StatusDead},
		"unrecoverable":             {err: fmt.Errorf("selling: %w", outbox.Unrecoverable(failure)), want: outbox.OutcomeDead, status: outbox.StatusDead},
		"unroutable":                {err: outbox.ErrUnroutable, want: outbox.OutcomeDead, status: outbox.StatusDead},
		"unroutable, left to others": {
			options: outbox.DispatchOptions{OnUnroutable: outbox.Defer(time.Hour)}, err: outbox.ErrUnroutable,
			want: outbox.OutcomeDeferred, status: outbox.StatusNew,
		},
		"an answer beside an error counts for nothing": {
			options: last, res: outbox.RetryAfter(time.Hour), err: failure, want: outbox.OutcomeDead, status: outbox.StatusDead,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := outboxtest.NewStore()
			routes := outbox.NewRegistry()
			require.NoError(t, routes.Register(outbox.On("", "Said", outbox.ListenerFunc(
				func(context.Context, outbox.Envelope) (outbox.Result, error) { return tt.res, tt.err },
			))))
			var told outbox.Outcome
			d, err := outbox.NewDispatcher(outbox.DispatcherConfig{
				DB: store.DB(), Store: store, Registry: routes, Options: tt.options, Logger: quiet,
				Interceptors: []outbox.Interceptor{func(next outbox.Listener) outbox.Listener {
					return outbox.ListenerFunc(func(ctx context.Context, env outbox.Envelope) (outbox.Result, error) {
						res, err := next.OnEvent(ctx, env)
						told = outbox.OutcomeOf(ctx, env, res, err)
						return res, err
					})
				}},
			})
			require.NoError(t, err)
			env := said("e")
			env.AggregateType = outbox.Global
			got, err := d.Deliver(t.Context(), env)
			require.NoError(t, err)
			require.NoError(t, d.Close(t.Context()))
			require.Equal(t, tt.want, told)
			require.Equal(t, tt.status, got.Status)
			require.Equal(t, tt.want == outbox.OutcomeDeferred || tt.want == outbox.OutcomeRetry, !got.NextAt.IsZero())
		})
	}
}

func TestOutcomeOfOutsideADispatcherGoesByTheDefaults(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	first, last := said("e"), said("e")
	last.Attempts = outbox.DefaultMaxAttempts - 1
	require.Equal(t, outbox.OutcomeRetry, outbox.OutcomeOf(t.Context(), first, outbox.Done(), boom))
	require.Equal(t, outbox.OutcomeDead, outbox.OutcomeOf(t.Context(), last, outbox.Done(), boom))
	require.Equal(t, outbox.OutcomeDead, outbox.OutcomeOf(t.Context(), first, outbox.Done(), outbox.ErrUnroutable))

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.Equal(t, outbox.OutcomeReleased, outbox.OutcomeOf(ended, first, outbox.Done(), ended.Err()))
	require.Equal(t, outbox.OutcomeRetry, outbox.OutcomeOf(ended, first, outbox.Done(), &outbox.PanicError{Value: boom}))
	require.Equal(t, outbox.OutcomeDone, outbox.OutcomeOf(ended, first, outbox.Done(), nil))
}
