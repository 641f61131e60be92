package outboxtest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

func TestRecorderListenerFollowsItsScriptForEachEvent(t *testing.T) {
	t.Parallel()
	recorder := outboxtest.NewRecorder()
	failure := errors.New("it failed")
	listener := recorder.Listener(
		outboxtest.Answer{Err: failure},
		outboxtest.Answer{Panic: "boom"},
		outboxtest.Answer{Err: outbox.Defer(time.Second)},
	)
	for _, id := range []string{"a", "b"} {
		require.ErrorIs(t, listener.OnEvent(t.Context(), said(id)), failure)
		require.PanicsWithValue(t, "boom", func() { _ = listener.OnEvent(t.Context(), said(id)) })
		require.Equal(t, outbox.Defer(time.Second), listener.OnEvent(t.Context(), said(id)))
		for range 2 {
			require.NoError(t, listener.OnEvent(t.Context(), said(id)), "beyond the script it succeeds")
		}
	}
	require.Len(t, recorder.Deliveries(), 10)
	recorder.Reset()
	require.Empty(t, recorder.Deliveries())
}

func TestRecorderWaits(t *testing.T) {
	t.Parallel()
	recorder := outboxtest.NewRecorder()
	listener := recorder.Listener()
	go func() {
		for _, id := range []string{"a", "b", "c"} {
			_ = listener.OnEvent(context.Background(), said(id))
		}
	}()
	require.Len(t, recorder.WaitDeliveries(t, 3), 3)
}

func TestRecorderGivesUpWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		recorder, fake := outboxtest.NewRecorder(), newFakeT(t)
		_ = recorder.Listener().OnEvent(t.Context(), said("a"))
		began := time.Now()
		message := fatality(func() { recorder.WaitDeliveries(fake, 2) })
		require.Equal(t, outboxtest.WaitLimit, time.Since(began))
		require.Contains(t, message, "2 deliveries, there are 1")
		require.Contains(t, message, "EventID:a")
		message = fatality(func() { recorder.WaitCommitted(fake, 1) })
		require.Contains(t, message, "1 committed events, there are 0")
	})
}
