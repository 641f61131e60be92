package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
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
		err     error
		want    outbox.Outcome
		status  outbox.Status
	}{
		"done":                       {want: outbox.OutcomeDone, status: outbox.StatusDone},
		"deferred":                   {err: outbox.Defer(time.Hour), want: outbox.OutcomeDeferred, status: outbox.StatusNew},
		"deferred, last attempt":     {options: last, err: outbox.Defer(time.Hour), want: outbox.OutcomeDeferred, status: outbox.StatusNew},
		"deferred, with a reason":    {err: fmt.Errorf("no stock: %w", outbox.Defer(time.Hour)), want: outbox.OutcomeDeferred, status: outbox.StatusNew},
		"deferred, beside a failure": {err: errors.Join(failure, outbox.Defer(time.Hour)), want: outbox.OutcomeDeferred, status: outbox.StatusNew},
		"two decisions":              {err: errors.Join(outbox.Dead(failure), outbox.Defer(time.Hour)), want: outbox.OutcomeDead, status: outbox.StatusDead},
		"a decision about another":   {err: outbox.Dead(outbox.Defer(time.Hour)), want: outbox.OutcomeDead, status: outbox.StatusDead},
		"no such decision":           {err: &outbox.OutcomeError{Outcome: outbox.OutcomeDone, Err: failure}, want: outbox.OutcomeRetry, status: outbox.StatusRetry},
		"failed":                     {err: failure, want: outbox.OutcomeRetry, status: outbox.StatusRetry},
		"failed, last attempt":       {options: last, err: failure, want: outbox.OutcomeDead, status: outbox.StatusDead},
		"failed with a delay":        {err: outbox.RetryIn(time.Hour, failure), want: outbox.OutcomeRetry, status: outbox.StatusRetry},
		"failed with a delay, last":  {options: last, err: outbox.RetryIn(time.Hour, failure), want: outbox.OutcomeDead, status: outbox.StatusDead},
		"dead":                       {err: fmt.Errorf("selling: %w", outbox.Dead(failure)), want: outbox.OutcomeDead, status: outbox.StatusDead},
		"unroutable":                 {err: outbox.ErrUnroutable, want: outbox.OutcomeDeferred, status: outbox.StatusNew},
		"unroutable, dead": {
			options: outbox.DispatchOptions{OnUnroutable: outbox.KillUnroutable}, err: outbox.ErrUnroutable,
			want: outbox.OutcomeDead, status: outbox.StatusDead,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := outboxtest.NewStore()
			var outcome outbox.Outcome
			ob, err := outbox.New(outbox.Config{
				DB: store.DB(), Store: store, Mode: outbox.SingleNode{Dispatch: tt.options}, Logger: quiet,
				Interceptors: []outbox.Interceptor{func(next outbox.Listener) outbox.Listener {
					return outbox.ListenerFunc(func(ctx context.Context, env outbox.Envelope) error {
						err := next.OnEvent(ctx, env)
						outcome = outbox.OutcomeOf(ctx, env, err)
						return err
					})
				}},
			})
			require.NoError(t, err)
			require.NoError(t, ob.Register(outbox.On("", "Said", outbox.ListenerFunc(
				func(context.Context, outbox.Envelope) error { return tt.err },
			))))
			env := said("e")
			env.AggregateType = outbox.Global
			got, err := ob.Deliver(t.Context(), env)
			require.NoError(t, err)
			require.NoError(t, ob.Close(t.Context()))
			require.Equal(t, tt.want, outcome)
			require.Equal(t, tt.status, got.Status)
			require.Equal(t, tt.want == outbox.OutcomeDeferred || tt.want == outbox.OutcomeRetry, !got.NextAt.IsZero())
		})
	}
}

// Made by hand, the delay may be negative: the event would go ahead of older ones.
func TestNoDeferralMakesAnEventDueInThePast(t *testing.T) {
	t.Parallel()
	store, now := outboxtest.NewStore(), time.Now().UTC().Truncate(time.Microsecond)
	ob, err := outbox.New(outbox.Config{
		DB: store.DB(), Store: store, Logger: quiet, Clock: outbox.ClockFunc(func() time.Time { return now }),
	})
	require.NoError(t, err)
	require.NoError(t, ob.Register(outbox.On("", "Said", outbox.ListenerFunc(func(context.Context, outbox.Envelope) error {
		return &outbox.OutcomeError{Outcome: outbox.OutcomeDeferred, Delay: -time.Hour}
	}))))
	env := said("e")
	env.AggregateType = outbox.Global
	got, err := ob.Deliver(t.Context(), env)
	require.NoError(t, err)
	require.Equal(t, outbox.StatusNew, got.Status)
	require.Equal(t, now, got.NextAt)
	require.NoError(t, ob.Close(t.Context()))
}

func TestOutcomeOfOutsideADispatcherGoesByTheDefaults(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	first, last := said("e"), said("e")
	last.Attempts = 10 - 1
	require.Equal(t, outbox.OutcomeRetry, outbox.OutcomeOf(t.Context(), first, boom))
	require.Equal(t, outbox.OutcomeDead, outbox.OutcomeOf(t.Context(), last, boom))
	require.Equal(t, outbox.OutcomeDeferred, outbox.OutcomeOf(t.Context(), first, outbox.ErrUnroutable))

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.Equal(t, outbox.OutcomeReleased, outbox.OutcomeOf(ended, first, ended.Err()))
	require.Equal(t, outbox.OutcomeRetry, outbox.OutcomeOf(ended, first, &outbox.PanicError{Value: boom}))
	require.Equal(t, outbox.OutcomeDone, outbox.OutcomeOf(ended, first, nil))
	require.Equal(t, outbox.OutcomeDeferred, outbox.OutcomeOf(ended, first, outbox.Defer(time.Minute)))
	require.Equal(t, outbox.OutcomeDead, outbox.OutcomeOf(ended, first, outbox.Dead(boom)))
	require.Equal(t, outbox.OutcomeReleased, outbox.OutcomeOf(ended, first, outbox.RetryIn(time.Minute, ended.Err())))
}

func TestListenerAnswersBecomeOutcomes(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	type answer func() error
	for name, tc := range map[string]struct {
		answer   answer
		status   outbox.Status
		attempts int
		lastErr  string
		dueIn    [2]time.Duration
	}{
		"done":                  {func() error { return nil }, outbox.StatusDone, 0, "", [2]time.Duration{}},
		"deferred":              {func() error { return outbox.Defer(time.Hour) }, outbox.StatusNew, 0, "", [2]time.Duration{time.Hour, time.Hour}},
		"dead without a reason": {func() error { return outbox.Dead(nil) }, outbox.StatusDead, 0, "the listener gave no reason", [2]time.Duration{}},
		"dead":                  {func() error { return outbox.Dead(boom) }, outbox.StatusDead, 0, "boom", [2]time.Duration{}},
		"retry in":              {func() error { return outbox.RetryIn(time.Hour, boom) }, outbox.StatusRetry, 1, "boom (retry after 1h0m0s)", [2]time.Duration{time.Hour, time.Hour}},
		"error by the policy":   {func() error { return boom }, outbox.StatusRetry, 1, "boom", [2]time.Duration{30 * time.Minute, 90 * time.Minute}},
		"panic":                 {func() error { panic("oh no") }, outbox.StatusRetry, 1, "panic at outcome_test.go:", [2]time.Duration{30 * time.Minute, 90 * time.Minute}},
		"goexit":                {func() error { runtime.Goexit(); return nil }, outbox.StatusRetry, 1, "Goexit", [2]time.Duration{30 * time.Minute, 90 * time.Minute}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answered := make(chan time.Time, 1)
			e := start(t, outbox.Config{
				Mode:        outbox.SingleNode{Dispatch: outbox.DispatchOptions{Workers: 1}, Poll: outbox.PollOptions{Interval: time.Hour}},
				RetryPolicy: outbox.ExponentialBackoff(time.Hour, 2*time.Hour),
			}, func(_ context.Context, env outbox.Envelope) error {
				if env.EventID == "another" {
					return nil
				}
				answered <- time.Now()
				return tc.answer()
			})
			e.write(said("one"))
			at := receive(t, answered)
			e.write(said("another")) // the worker still works
			e.await("another", outbox.StatusDone)
			require.NoError(t, e.Close(t.Context()))
			row, found := e.store.Row("one")
			require.True(t, found)
			require.Equal(t, tc.status, row.Status)
			require.Equal(t, tc.attempts, row.Attempts)
			require.Contains(t, row.LastError, tc.lastErr)
			require.Equal(t, tc.status.Terminal(), !row.DoneAt.IsZero())
			if tc.dueIn[1] > 0 {
				require.WithinRange(t, row.AvailableAt, at.Add(tc.dueIn[0]-time.Second), at.Add(tc.dueIn[1]+10*time.Second))
			}
		})
	}
}

func TestMaxAttemptsCountsDeliveries(t *testing.T) {
	t.Parallel()
	var c calls
	e := start(t, outbox.Config{
		Mode:        outbox.SingleNode{Dispatch: outbox.DispatchOptions{MaxAttempts: 3}, Poll: outbox.PollOptions{Interval: time.Hour}},
		RetryPolicy: outbox.RetryPolicyFunc(func(int) time.Duration { return time.Millisecond }),
	}, func(_ context.Context, env outbox.Envelope) error {
		if n := c.add(env.EventID); env.Attempts != n-1 {
			return outbox.Dead(errors.New("attempts are wrong"))
		}
		return errors.New("no luck")
	})
	e.write(said("unlucky"))
	row := e.await("unlucky", outbox.StatusDead)
	require.Equal(t, 3, row.Attempts)
	require.Equal(t, "no luck", row.LastError)
	require.Equal(t, 3, c.n["unlucky"])
	letter, err := e.DeadLetters().Get(t.Context(), "unlucky")
	require.NoError(t, err)
	require.Equal(t, 3, letter.Attempts)
	require.Equal(t, "no luck", letter.LastError)
	require.False(t, letter.DiedAt.IsZero())
}

func TestListenerTimeoutEndsItsContext(t *testing.T) {
	t.Parallel()
	e := start(t, outbox.Config{Mode: outbox.SingleNode{Dispatch: outbox.DispatchOptions{ListenerTimeout: 5 * time.Millisecond, MaxAttempts: 1}}},
		func(ctx context.Context, _ outbox.Envelope) error {
			<-ctx.Done()
			return ctx.Err()
		})
	e.write(said("slow"))
	require.Contains(t, e.await("slow", outbox.StatusDead).LastError, "deadline exceeded")
}

func TestDeliverIsForAnOutboxThatIsNotStarted(t *testing.T) {
	t.Parallel()
	e := build(t, outbox.Config{}, func(context.Context, outbox.Envelope) error { return nil })
	env := said("e")
	env.AggregateType = outbox.Global
	e.write(env)
	got, err := e.Deliver(t.Context(), env)
	require.NoError(t, err)
	require.Equal(t, outbox.StatusDone, got.Status)
	row, _ := e.store.Row("e")
	require.Equal(t, outbox.StatusDone, row.Status, "the outcome is stored when Deliver returns")
	require.NoError(t, e.Start(t.Context()))
	_, err = e.Deliver(t.Context(), env)
	require.ErrorIs(t, err, outbox.ErrStarted)
	require.NoError(t, e.Close(t.Context()))
	_, err = e.Deliver(t.Context(), env)
	require.ErrorIs(t, err, outbox.ErrClosed)

	writes := build(t, outbox.Config{Mode: outbox.WriterOnly{}}, nil)
	_, err = writes.Deliver(t.Context(), env)
	require.ErrorContains(t, err, "Config.Mode is WriterOnly, which delivers nothing")
}
