package outboxtest_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

func TestDrainFollowsTheEnginesRules(t *testing.T) {
	t.Parallel()
	failure := errors.New("it failed")
	now := time.Now().UTC().Truncate(time.Microsecond).Add(time.Minute) // ahead of what is written
	for name, test := range map[string]struct {
		answer   outboxtest.Answer
		status   outbox.Status
		next     time.Duration // after now; zero: never
		attempts int
		err      string
	}{
		"done":      {status: outbox.StatusDone},
		"error":     {outboxtest.Answer{Err: failure}, outbox.StatusRetry, time.Minute, 1, "it failed"},
		"panic":     {outboxtest.Answer{Panic: "boom"}, outbox.StatusRetry, time.Minute, 1, "panic at recorder.go:90: boom"},
		"deferred":  {outboxtest.Answer{Err: outbox.Defer(time.Hour)}, outbox.StatusNew, time.Hour, 0, "deferred for 1h0m0s"},
		"retry in":  {outboxtest.Answer{Err: outbox.RetryIn(time.Hour, failure)}, outbox.StatusRetry, time.Hour, 1, "it failed (retry after 1h0m0s)"},
		"no reason": {outboxtest.Answer{Err: outbox.Dead(nil)}, outbox.StatusDead, 0, 0, "the listener gave no reason"},
		"dead":      {outboxtest.Answer{Err: outbox.Dead(failure)}, outbox.StatusDead, 0, 0, "it failed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := outboxtest.NewStore()
			write(t, store, said("a"))
			deliveries := outboxtest.Drain(t, outbox.Config{
				Store: store, Logger: quiet,
				Clock:       outbox.ClockFunc(func() time.Time { return now }),
				RetryPolicy: outbox.RetryPolicyFunc(func(int) time.Duration { return time.Minute }),
			}, outbox.On("", "Said", outboxtest.NewRecorder().Listener(test.answer)))
			require.Len(t, deliveries, 1)
			d := deliveries[0]
			require.Equal(t, test.status, d.Status)
			if test.err == "" {
				require.NoError(t, d.Err)
			} else {
				require.EqualError(t, d.Err, test.err)
			}
			row, _ := store.Row("a")
			require.Equal(t, test.status, row.Status)
			require.Equal(t, test.attempts, row.Attempts)
			if test.next > 0 {
				require.Equal(t, now.Add(test.next), d.NextAt)
				require.Equal(t, d.NextAt, row.AvailableAt)
			} else {
				require.Zero(t, d.NextAt)
			}
		})
	}
}

func TestDrainDeliversEachDueEventOnce(t *testing.T) {
	t.Parallel()
	store, recorder := outboxtest.NewStore(), outboxtest.NewRecorder()
	var envs []outbox.Envelope
	for i := range 1100 { // more than a batch
		envs = append(envs, said(fmt.Sprintf("%04d", i)))
	}
	delayed := said("delayed")
	delayed.DeliverAfter = time.Hour
	write(t, store, append(envs, delayed)...)
	again := outboxtest.Answer{Err: outbox.Defer(0)} // due again at once
	cfg := outbox.Config{Store: store, Logger: quiet}
	deliveries := outboxtest.Drain(t, cfg, outbox.On("", "Said", recorder.Listener(again)))
	require.Len(t, deliveries, len(envs))
	for i, d := range deliveries {
		require.Equal(t, envs[i].EventID, d.Envelope.EventID)
	}
	require.Len(t, recorder.Deliveries(), len(envs))

	cfg.Clock = outbox.ClockFunc(func() time.Time { return time.Now().Add(2 * time.Hour) })
	require.Len(t, outboxtest.Drain(t, cfg, outbox.On("", "Said", recorder.Listener())), len(envs)+1)
	require.Empty(t, outboxtest.Drain(t, cfg), "all are done")
}

func TestDrainUsesRegistryInterceptorsAndMaxAttempts(t *testing.T) {
	t.Parallel()
	store, registry := outboxtest.NewStore(), outbox.NewRegistry()
	require.NoError(t, registry.Register(outbox.On("", "Said", outboxtest.NewRecorder().Listener(outboxtest.Answer{Err: errors.New("it failed")}))))
	unroutable := outbox.Envelope{EventID: "b", EventType: "Unheard", Payload: outbox.JSON(1)}
	write(t, store, said("a"), unroutable)
	var after []error
	deliveries := outboxtest.Drain(t, outbox.Config{
		Store: store, Registry: registry, Logger: quiet,
		Mode: outbox.SingleNode{Dispatch: outbox.DispatchOptions{MaxAttempts: 1}},
		Interceptors: []outbox.Interceptor{outbox.After(func(_ context.Context, _ outbox.Envelope, err error) {
			after = append(after, err)
		})},
	})
	require.Len(t, deliveries, 2)
	require.Equal(t, outbox.StatusDead, deliveries[0].Status)
	require.Equal(t, outbox.StatusNew, deliveries[1].Status)
	require.ErrorIs(t, deliveries[1].Err, outbox.ErrUnroutable)
	require.Len(t, after, 2)
	row, _ := store.Row("a")
	require.Equal(t, 1, row.Attempts)
}

func TestDrainClaimsWithLeases(t *testing.T) {
	t.Parallel()
	store := outboxtest.NewStore()
	write(t, store, said("a"), said("b"))
	b, err := store.Claim(t.Context(), store.DB(), outbox.ClaimQuery{Now: time.Now(), Limit: 1, Lease: "another node", LeaseDuration: time.Minute})
	require.NoError(t, err)
	require.Len(t, b.Envelopes, 1)
	deliveries := outboxtest.Drain(t, outbox.Config{Store: store, Mode: outbox.MultiNode{}, Logger: quiet},
		outbox.On("", "Said", outboxtest.NewRecorder().Listener()))
	require.Len(t, deliveries, 1)
	require.Equal(t, "b", deliveries[0].Envelope.EventID)
	require.Equal(t, outbox.StatusDone, deliveries[0].Status)
}

// closing are metrics that can be closed.
type closing struct {
	outbox.NopMetrics
	closed *bool
}

func (c closing) Close() error {
	*c.closed = true
	return nil
}

func TestDrainLeavesMetricsToTheCaller(t *testing.T) {
	t.Parallel()
	metrics := closing{closed: new(bool)}
	outboxtest.Drain(t, outbox.Config{Store: outboxtest.NewStore(), Metrics: metrics, Logger: quiet})
	require.False(t, *metrics.closed)
}

func TestDrainBuriesWhatDoesNotDecode(t *testing.T) {
	t.Parallel()
	store := outboxtest.NewStore()
	write(t, store, said("a"), said("b"))
	require.True(t, store.CorruptHeaders("a"))
	deliveries := outboxtest.Drain(t, outbox.Config{Store: store, Logger: quiet},
		outbox.On("", "Said", outboxtest.NewRecorder().Listener()))
	require.Len(t, deliveries, 2)
	require.Equal(t, outbox.StatusDead, deliveries[0].Status)
	require.ErrorContains(t, deliveries[0].Err, "headers")
	require.Equal(t, outbox.StatusDone, deliveries[1].Status)
}

func TestDrainReportsAWrongConfig(t *testing.T) {
	t.Parallel()
	fake := newFakeT(t)
	require.Contains(t, fatality(func() { outboxtest.Drain(fake, outbox.Config{}) }), "Store is required")
	listener := outboxtest.NewRecorder().Listener()
	twice := []outbox.Binding{outbox.On("", "Said", listener), outbox.On("", "Said", listener)}
	message := fatality(func() { outboxtest.Drain(fake, outbox.Config{Store: outboxtest.NewStore()}, twice...) })
	require.Contains(t, message, "duplicate listener")
	byKey := outbox.Config{Store: outboxtest.NewStore(), Mode: outbox.OrderedByKey{}}
	require.Contains(t, fatality(func() { outboxtest.Drain(fake, byKey) }), "Config.Mode is OrderedByKey")
}

func TestDrainShowsTheRowsOfSeveralListeners(t *testing.T) {
	t.Parallel()
	store := outboxtest.NewStore()
	env := outbox.Envelope{EventID: "e", EventType: "T", AggregateType: "A", Payload: outbox.RawJSON("1")}
	require.NoError(t, env.Validate())
	env.OccurredAt = time.Now().UTC().Truncate(time.Microsecond)
	env.AvailableAt = env.OccurredAt
	require.NoError(t, store.Insert(t.Context(), store.DB(), []outbox.Envelope{env}, "", time.Time{}))
	down := errors.New("down")
	works := false
	bindings := []outbox.Binding{
		outbox.On("A", "T", outbox.ListenerFunc(func(context.Context, outbox.Envelope) error { return nil }), outbox.Named("search")),
		outbox.On("A", "T", outbox.ListenerFunc(func(context.Context, outbox.Envelope) error {
			if works {
				return nil
			}
			return down
		}), outbox.Named("mail")),
	}
	cfg := outbox.Config{Store: store, Logger: slog.New(slog.DiscardHandler), RetryPolicy: outbox.RetryPolicyFunc(func(int) time.Duration { return 0 })}
	first := outboxtest.Drain(t, cfg, bindings...)
	require.Len(t, first, 1)
	require.Equal(t, outbox.StatusDone, first[0].Status)
	require.ErrorIs(t, first[0].Err, down)
	require.Len(t, first[0].Rows, 1)
	require.Equal(t, "mail", first[0].Rows[0].Listener)
	require.Equal(t, outbox.StatusRetry, first[0].Rows[0].Status)
	require.Equal(t, "e", first[0].Rows[0].Envelope.EventID)
	require.Len(t, store.Rows(), 2)
	require.Len(t, store.Emitted(), 1)

	works = true
	second := outboxtest.Drain(t, cfg, bindings...)
	require.Len(t, second, 1)
	require.Equal(t, "mail", second[0].Listener)
	require.Equal(t, "e", second[0].Envelope.EventID)
	require.Equal(t, outbox.StatusDone, second[0].Status)
	require.NoError(t, second[0].Err)
}
