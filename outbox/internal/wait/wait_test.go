package wait_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox/internal/wait"
)

func TestSleepEndsWithItsContextOrItsTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		wait.Sleep(t.Context(), time.Minute)
		require.Equal(t, time.Minute, time.Since(began))

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wait.Sleep(ctx, wait.Never)
		require.Equal(t, time.Minute+time.Second, time.Since(began))
	})
}

func TestForSaysWhetherTheChannelWasClosedInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		done := make(chan struct{})
		require.False(t, wait.For(t.Context(), done, time.Second))
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		require.False(t, wait.For(ended, done, time.Second))

		began := time.Now()
		time.AfterFunc(time.Second, func() { close(done) })
		require.True(t, wait.For(t.Context(), done, time.Minute))
		require.Equal(t, time.Second, time.Since(began))
		for range 100 { // a select of several ready channels takes any of them
			require.True(t, wait.For(ended, done, 0))
		}
	})
}

func TestASecondSignalDoesNotBlock(t *testing.T) {
	t.Parallel()
	c := make(chan struct{}, 1)
	wait.Signal(c)
	wait.Signal(c)
	require.Len(t, c, 1)
}
