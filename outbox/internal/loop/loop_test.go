package loop_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox/internal/loop"
	"github.com/outboxkit/outbox-go/outbox/internal/wait"
)

var errClosed = errors.New("closed")

func TestALoopRunsOnceAndEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int32
		l := loop.New(func(ctx context.Context) {
			runs.Add(1)
			<-ctx.Done()
			time.Sleep(time.Millisecond)
			runs.Add(-1)
		}, errClosed)
		ended, end := context.WithCancel(t.Context())
		end()
		require.ErrorIs(t, l.Start(ended), context.Canceled)
		for range 3 {
			require.NoError(t, l.Start(t.Context()))
		}
		synctest.Wait()
		require.EqualValues(t, 1, runs.Load())
		l.Cancel()
		require.NoError(t, l.Close(t.Context()))
		require.Zero(t, runs.Load(), "Close waits")
		require.NoError(t, l.Close(t.Context()), "closing twice is harmless")
		require.Equal(t, errClosed, l.Start(t.Context()))

		unstarted := loop.New(func(context.Context) { panic("it runs") }, errClosed)
		require.NoError(t, unstarted.Close(t.Context()))
		require.Equal(t, errClosed, unstarted.Start(t.Context()))
	})
}

func TestClosingABodyThatDoesNotEndTakesItsTimeAndTheGrace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		l := loop.New(func(context.Context) { <-end }, errClosed)
		require.NoError(t, l.Start(t.Context()))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		err := l.Close(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "it has not ended yet")
		require.Equal(t, time.Minute+wait.Grace, time.Since(began))
		close(end)
		require.NoError(t, l.Close(ctx), "the end counts, whatever the context")
	})
}
