package outbox_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
)

// depths keeps the last reported depth of the hot queue.
type depths struct {
	outbox.NopMetrics
	hot atomic.Int64
}

func (d *depths) QueueDepths(hot, _ int) { d.hot.Store(int64(hot)) }

func TestTheDepthOfAFullHotQueueIsReportedWhileWorkersHang(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reported, leave := &depths{}, make(chan struct{})
		e := start(t, outbox.Config{Metrics: reported, Mode: outbox.SingleNode{
			Dispatch: outbox.DispatchOptions{Workers: 1, HotCapacity: 3},
			Poll:     outbox.PollOptions{Interval: time.Hour, SkipRecent: time.Hour},
		}}, func(context.Context, outbox.Envelope) error {
			<-leave
			return nil
		})
		e.write(said(""))
		synctest.Wait() // it runs
		for range 4 {
			e.write(said("")) // the last finds the queue full
		}
		require.EqualValues(t, 3, reported.hot.Load())
		close(leave)
		require.NoError(t, e.Close(context.Background()))
		require.Zero(t, reported.hot.Load())
	})
}

func TestQueueDepthsAreReportedWhileWorkersHangAndNothingIsDropped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reported, leave := &depths{}, make(chan struct{})
		e := start(t, outbox.Config{Metrics: reported, Mode: outbox.SingleNode{
			Dispatch: outbox.DispatchOptions{Workers: 1}, Poll: outbox.PollOptions{Interval: time.Second},
		}}, func(context.Context, outbox.Envelope) error {
			<-leave
			return nil
		})
		for range 5 {
			e.write(said(""))
		}
		time.Sleep(2 * time.Second)
		require.EqualValues(t, 4, reported.hot.Load())
		close(leave)
		require.NoError(t, e.Close(context.Background()))
		require.Zero(t, reported.hot.Load())
	})
}
