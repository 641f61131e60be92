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

// While a read from the start of the table is slow, as beside a transaction with an old
// snapshot, it is made once in an interval, and once more for takeovers. Events that
// become due wait for these two at most. A transaction that commits late waits for the
// next one. A read that takes longer than the shortest patience is cut off a few times at
// first, but not in each interval.
func TestASlowReadFromTheStartIsMadeOnceInAnInterval(t *testing.T) {
	const interval = 10 * time.Second
	for _, tc := range []struct {
		name        string
		took        time.Duration
		least, most int64 // reads from the start in four intervals
		cut         int64 // of them, at most
		late        time.Duration
	}{
		{"fast", time.Millisecond, 100, 1000, 0, 50 * time.Millisecond},
		{"slow", 400 * time.Millisecond, 4, 9, 0, interval + time.Second},
		{"slower than the shortest patience", 3 * time.Second, 7, 12, 3, interval + 6*time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &readLog{Store: outboxtest.NewStore()}
				for i := range 160 { // due one after the other
					insertDue(t, s.Store, fmt.Sprintf("e%03d", i), time.Duration(i)*250*time.Millisecond)
				}
				var fromStart, cut atomic.Int64
				s.slow = func(ctx context.Context, q outbox.PollQuery) error {
					if !q.After.IsZero() {
						return nil
					}
					fromStart.Add(1)
					select {
					case <-time.After(tc.took):
						return nil
					case <-ctx.Done():
						cut.Add(1)
						return ctx.Err()
					}
				}
				began, ended := time.Now(), make(chan time.Time, 1)
				start(t, outbox.Config{Store: s, Mode: outbox.MultiNode{Poll: outbox.PollOptions{Interval: interval}}}, func(_ context.Context, env outbox.Envelope) error {
					switch first := time.Since(began) < 2*interval; {
					case env.EventID == "late":
						ended <- time.Now()
					case !first || tc.cut == 0:
						require.Less(t, time.Since(env.AvailableAt), 2*tc.took+10*time.Millisecond, env.EventID)
					}
					return nil
				})
				time.Sleep(2*interval + interval/2)
				late := time.Now()
				insertDue(t, s.Store, "late", -time.Hour)
				require.LessOrEqual(t, (<-ended).Sub(late), tc.late)
				time.Sleep(4*interval - time.Since(began))
				require.GreaterOrEqual(t, fromStart.Load(), tc.least)
				require.LessOrEqual(t, fromStart.Load(), tc.most)
				require.LessOrEqual(t, cut.Load(), tc.cut)
			})
		})
	}
}
