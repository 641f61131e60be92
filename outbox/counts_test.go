package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

func TestANodeReportsWhatItWroteDeliveredAndFailed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reported := &countedCalls{}
		e := start(t, outbox.Config{Metrics: reported, Mode: outbox.SingleNode{Dispatch: outbox.DispatchOptions{MaxAttempts: 2}}}, func(_ context.Context, env outbox.Envelope) error {
			if env.AggregateID == "fails" {
				return errors.New("fails")
			}
			time.Sleep(100 * time.Millisecond)
			return nil
		})
		totals := func() *outbox.Totals { return nodesOf(t, e.Outbox)[0].Totals }
		synctest.Wait()
		require.Equal(t, &outbox.Totals{}, totals(), "known, and zero")
		for range 3 {
			e.write(said(""))
		}
		e.write(outbox.Envelope{EventType: "Said", AggregateID: "fails", Payload: outbox.JSON(1)})
		time.Sleep(time.Hour) // both attempts, and a report
		got := totals()
		require.EqualValues(t, 4, got.Written)
		require.EqualValues(t, 3, got.Delivered)
		require.EqualValues(t, 2, got.Failed, "an attempt that is repeated, and the death")
		i := len(got.Latencies) - 1
		require.EqualValues(t, 3, got.Latencies[i])
		require.GreaterOrEqual(t, outbox.LatencyBound(i), 100*time.Millisecond)
		require.Less(t, outbox.LatencyBound(i-1), 100*time.Millisecond)
		require.Equal(t, []outbox.KindTotals{{Kind: outbox.EventKind{AggregateType: outbox.Global, EventType: "Said"}, Delivered: 3, Failed: 2}}, got.Kinds)
		require.Same(t, reported, e.Metrics(), "the metrics are those of the config")
		require.Equal(t, 3, int(reported.delivered), "and get the calls")
		require.NoError(t, e.Close(context.Background()))
	})
}

func TestANodeReportsItsBusiestKinds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := outboxtest.NewStore()
		ob, err := outbox.New(outbox.Config{DB: store.DB(), Store: store, Mode: outbox.MultiNode{}})
		require.NoError(t, err)
		kind := func(i int) outbox.EventType { return outbox.EventType(fmt.Sprintf("T%02d", i)) }
		fails := func(context.Context, outbox.Envelope) error { return outbox.Dead(errors.New("fails")) }
		require.NoError(t, ob.Register(
			outbox.On("", "Both", outbox.ListenerFunc(handled), outbox.Named("works")), outbox.On("", "Both", outbox.ListenerFunc(fails), outbox.Named("fails")),
			outbox.On("", "Never", outbox.ListenerFunc(handled)),
		))
		for i := range 60 {
			require.NoError(t, ob.Register(outbox.On("", kind(i), outbox.ListenerFunc(handled))))
		}
		require.NoError(t, ob.Start(t.Context()))
		write := func(event outbox.EventType) {
			scope := outboxtest.NewScope(store.DB())
			_, err := ob.Writer().WriteScope(t.Context(), scope, []outbox.Envelope{{EventType: event, Payload: outbox.JSON(1)}})
			require.NoError(t, err)
			require.NoError(t, scope.Commit())
		}
		for range 9 {
			write("Both")
		}
		for i := range 60 {
			for range 1 + i/30 {
				write(kind(i))
			}
		}
		time.Sleep(time.Minute)
		kinds := nodesOf(t, ob)[0].Totals.Kinds
		require.Len(t, kinds, 50)
		require.Equal(t, outbox.KindTotals{Kind: outbox.EventKind{AggregateType: outbox.Global, EventType: "Both"}, Delivered: 9, Failed: 9}, kinds[0])
		require.Equal(t, outbox.KindTotals{Kind: outbox.EventKind{AggregateType: outbox.Global, EventType: "T30"}, Delivered: 2}, kinds[1])
		require.Equal(t, outbox.KindTotals{Kind: outbox.EventKind{AggregateType: outbox.Global, EventType: "T18"}, Delivered: 1}, kinds[49])
		require.NoError(t, ob.Close(context.WithoutCancel(t.Context())))
	})
}

// countedCalls counts calls; one goroutine stores outcomes at a time.
type countedCalls struct {
	outbox.NopMetrics
	delivered int
}

func (m *countedCalls) Delivered(outbox.EventKind, time.Duration) { m.delivered++ }

func TestLatencyBoundsGrow(t *testing.T) {
	t.Parallel()
	require.Equal(t, time.Millisecond, outbox.LatencyBound(0))
	require.Equal(t, time.Millisecond, outbox.LatencyBound(-1))
	require.Equal(t, 2*time.Millisecond, outbox.LatencyBound(2))
	for i := 1; i < 53; i++ {
		require.Greater(t, outbox.LatencyBound(i), outbox.LatencyBound(i-1))
	}
	require.Greater(t, outbox.LatencyBound(52), 18*time.Hour)
	require.Equal(t, time.Duration(math.MaxInt64), outbox.LatencyBound(53))
	require.Equal(t, time.Duration(math.MaxInt64), outbox.LatencyBound(100))
}

func TestClosingEndsWithClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := start(t, outbox.Config{}, handled)
		select {
		case <-e.Closing():
			t.Fatal("it is not closed")
		default:
		}
		require.NoError(t, e.Close(context.Background()))
		<-e.Closing()
	})
}
