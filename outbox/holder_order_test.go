package outbox_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// unheld is a store whose hold cannot be renewed while it is away.
type unheld struct {
	*outboxtest.Store
	away atomic.Bool
}

func (s *unheld) memory() *outboxtest.Store { return s.Store }

func (s *unheld) SetRanges(ctx context.Context, db outbox.DB, was string, by time.Time, next outbox.Ranges) (bool, error) {
	if s.away.Load() {
		return false, errAway
	}
	return s.Store.SetRanges(ctx, db, was, by, next)
}

// The hold lapses in the middle of a backlog and comes back. What was queued goes
// back to its place before the next batch is read.
func TestOrderHoldsAfterTheHoldCameBack(t *testing.T) {
	t.Parallel()
	for _, interval := range []time.Duration{5 * time.Second, time.Minute} {
		for _, away := range []time.Duration{8500 * time.Millisecond, 9 * time.Second, 11 * time.Second, 15 * time.Second} {
			t.Run(fmt.Sprint(interval, away), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					store := &unheld{Store: outboxtest.NewStore()}
					var want, got []string
					for i := range 3000 {
						want = append(want, fmt.Sprintf("e%04d", i))
						insertDue(t, store.Store, want[i], time.Duration(i-10_000)*time.Second)
					}
					e := start(t, outbox.Config{Store: store, Mode: outbox.Ordered{Poll: outbox.PollOptions{Interval: interval}}},
						func(_ context.Context, env outbox.Envelope) error {
							got = append(got, env.EventID)
							time.Sleep(7 * time.Millisecond)
							return nil
						})
					time.Sleep(3500 * time.Millisecond)
					store.away.Store(true)
					time.Sleep(away)
					store.away.Store(false)
					time.Sleep(10 * time.Minute)
					require.NoError(t, e.Close(context.Background()))
					require.Equal(t, want, got)
				})
			})
		}
	}
}
