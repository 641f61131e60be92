package outbox_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// Events that no process listens to are deferred again and again: they are due for a moment,
// and never fail. Their rows and the log say so.
func TestDeferredEventsWithoutAListenerAreSeen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		store := outboxtest.NewStore()
		e := build(t, outbox.Config{
			Store: store, Logger: slog.New(slog.NewTextHandler(&log, nil)),
			Mode: outbox.SingleNode{Dispatch: outbox.DispatchOptions{DeferUnroutable: time.Minute}},
		}, func(context.Context, outbox.Envelope) error { return nil })
		require.NoError(t, e.Start(t.Context()))
		other := said("other")
		other.EventType = "Other"
		for _, id := range []string{"a", "b", "c"} {
			env := said(id)
			env.EventType = "Lost"
			e.write(env)
		}
		e.write(other)
		time.Sleep(2 * time.Second)
		row, _ := store.Row("a")
		require.Equal(t, outbox.StatusNew, row.Status)
		require.Zero(t, row.Attempts)
		require.Equal(t, "no listener for __GLOBAL__/Lost in the process that took it; deferred by 1m0s", row.LastError)
		time.Sleep(10 * time.Minute)
		require.NoError(t, e.Close(t.Context()))
		lines := 0
		for line := range strings.Lines(log.String()) {
			if strings.Contains(line, "level=WARN") && strings.Contains(line, "have no listener in this process and are deferred") {
				lines++
				require.Contains(t, line, "delay=1m0s")
			}
		}
		require.Contains(t, log.String(), "event_type=Lost")
		require.Contains(t, log.String(), "event_type=Other")
		require.LessOrEqual(t, lines, 2*12, "a line a minute for each kind, not for each event")
	})
}

func TestADeferralKeepsItsReason(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		store := outboxtest.NewStore()
		e := start(t, outbox.Config{Store: store}, func(context.Context, outbox.Envelope) error {
			if calls++; calls == 1 {
				return fmt.Errorf("the broker is away: %w", outbox.Defer(time.Hour))
			}
			return outbox.Defer(time.Hour)
		})
		e.write(said("a"))
		for range 2 { // a deferral without a reason leaves the last one
			time.Sleep(time.Minute)
			row, _ := store.Row("a")
			require.Equal(t, "the broker is away: deferred for 1h0m0s", row.LastError)
			require.Equal(t, outbox.StatusNew, row.Status)
			time.Sleep(time.Hour)
		}
		require.NoError(t, e.Close(t.Context()))
	})
}
