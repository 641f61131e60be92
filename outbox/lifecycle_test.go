package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
)

func TestLifecycleOrder(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	for name, mode := range map[string]outbox.Mode{"single": outbox.SingleNode{}, "multi": outbox.MultiNode{}, "ordered": outbox.Ordered{}, "writer": outbox.WriterOnly{}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := build(t, outbox.Config{Mode: mode, Purge: &outbox.PurgeOptions{}}, nil)
			require.NoError(t, e.Register(outbox.On("A", "B", outbox.ListenerFunc(noop))))
			require.ErrorIs(t, e.Register(outbox.On("A", "B", outbox.ListenerFunc(noop))), outbox.ErrDuplicateListener)
			require.NoError(t, e.Start(ctx))
			require.NoError(t, e.Start(ctx), "starting twice is harmless")
			require.ErrorIs(t, e.Register(outbox.On("A", "C", outbox.ListenerFunc(noop))), outbox.ErrStarted)
			require.NoError(t, e.Close(ctx))
			require.NoError(t, e.Close(ctx), "closing twice is harmless")
			require.ErrorIs(t, e.Start(ctx), outbox.ErrClosed)
			require.ErrorIs(t, e.Register(outbox.On("A", "C", outbox.ListenerFunc(noop))), outbox.ErrClosed)

			unstarted := build(t, outbox.Config{Mode: mode, Purge: &outbox.PurgeOptions{}}, nil)
			require.NoError(t, unstarted.Close(ctx), "closing before the start is fine")
			require.ErrorIs(t, unstarted.Start(ctx), outbox.ErrClosed)

			ended, cancel := context.WithCancel(ctx)
			cancel()
			late := build(t, outbox.Config{Mode: mode}, nil)
			require.ErrorIs(t, late.Start(ended), context.Canceled)
			require.NoError(t, late.Start(ctx), "Start works after a Start that failed")
		})
	}
}

func TestRunStartsAndClosesWithItsContext(t *testing.T) {
	t.Parallel()
	got := make(chan struct{})
	e := build(t, outbox.Config{}, func(context.Context, outbox.Envelope) error {
		close(got)
		return nil
	})
	e.write(said("before the start")) // the poller finds it
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	receive(t, got)
	cancel()
	require.NoError(t, receive(t, ended))
	row, _ := e.store.Row("before the start")
	require.Equal(t, outbox.StatusDone, row.Status, "Close stores the outcome")
}

func TestCloseDeliversQueuedEvents(t *testing.T) {
	t.Parallel()
	var c calls
	gate := make(chan struct{})
	e := start(t, outbox.Config{Mode: outbox.SingleNode{Dispatch: outbox.DispatchOptions{Workers: 1}, Poll: outbox.PollOptions{Interval: time.Hour}}},
		func(_ context.Context, env outbox.Envelope) error {
			<-gate
			c.add(env.EventID)
			return nil
		})
	for i := range 50 {
		e.write(said(fmt.Sprint("e", i)))
	}
	closed := make(chan error)
	go func() { closed <- e.Close(context.Background()) }()
	close(gate)
	require.NoError(t, receive(t, closed))
	events, _ := c.total()
	require.Equal(t, 50, events)
	for i := range 50 {
		row, _ := e.store.Row(fmt.Sprint("e", i))
		require.Equal(t, outbox.StatusDone, row.Status)
	}
}

// An event that Close cuts off has no failed attempt and no lease.
func TestCloseReleasesEventsThatItCutsOff(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]outbox.Mode{
		"single node": outbox.SingleNode{Dispatch: outbox.DispatchOptions{Workers: 2, DrainTimeout: 20 * time.Millisecond}},
		"multi node":  outbox.MultiNode{Dispatch: outbox.DispatchOptions{Workers: 2, DrainTimeout: 20 * time.Millisecond}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			running := make(chan struct{}, 10)
			e := start(t, outbox.Config{Mode: mode}, func(ctx context.Context, _ outbox.Envelope) error {
				running <- struct{}{}
				<-ctx.Done()
				return ctx.Err()
			})
			e.write(said("a"), said("b"), said("c"), said("d"))
			receive(t, running)
			receive(t, running)
			require.NoError(t, e.Close(t.Context()))
			for _, id := range []string{"a", "b", "c", "d"} {
				row, _ := e.store.Row(id)
				require.Equal(t, outbox.StatusNew, row.Status)
				require.Zero(t, row.Attempts)
				require.Empty(t, row.LastError)
				require.Empty(t, row.LockedBy)
			}
		})
	}
}

func TestCloseCutsTheDrainShortWhenItsContextEnds(t *testing.T) {
	t.Parallel()
	running := make(chan struct{})
	e := start(t, outbox.Config{Mode: outbox.SingleNode{Dispatch: outbox.DispatchOptions{DrainTimeout: time.Hour}}},
		func(ctx context.Context, _ outbox.Envelope) error {
			close(running)
			<-ctx.Done()
			return ctx.Err()
		})
	e.write(said("long"))
	receive(t, running)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, e.Close(ctx))
	row, _ := e.store.Row("long")
	require.Equal(t, outbox.StatusNew, row.Status)
}

func TestCloseReportsListenersThatWillNotEnd(t *testing.T) {
	t.Parallel()
	running, release := make(chan struct{}), make(chan struct{})
	e := start(t, outbox.Config{Mode: outbox.SingleNode{Dispatch: outbox.DispatchOptions{DrainTimeout: 10 * time.Millisecond}}},
		func(context.Context, outbox.Envelope) error {
			close(running)
			<-release
			return nil
		})
	e.write(said("blocked"))
	receive(t, running)
	require.ErrorContains(t, e.Close(t.Context()), "listeners still run")
	close(release) // so that the worker ends before the test's leak check
	row, _ := e.store.Row("blocked")
	require.Equal(t, outbox.StatusNew, row.Status, "its outcome is too late; it will be delivered again")
}

type closingMetrics struct {
	outbox.NopMetrics
	err error
}

func (m closingMetrics) Close() error { return m.err }

func TestCloseClosesTheMetricsLastAndJoinsErrors(t *testing.T) {
	t.Parallel()
	broken := errors.New("exporter is gone")
	e := start(t, outbox.Config{Metrics: closingMetrics{err: broken}}, handled)
	require.ErrorIs(t, e.Close(t.Context()), broken)
}
