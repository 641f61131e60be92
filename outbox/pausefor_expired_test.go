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
)

// An event that expired is no probe: its end says nothing of the receiver.
func TestAnExpiredEventIsNoProbe(t *testing.T) {
	t.Parallel()
	for name, mode := range modesThatLeave {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var calls atomic.Int32
				e := build(t, outbox.Config{Mode: mode}, nil)
				require.NoError(t, e.Register(outbox.On("", "Said", outbox.ListenerFunc(func(_ context.Context, _ outbox.Envelope) error {
					calls.Add(1)
					time.Sleep(time.Second)
					return outbox.PauseFor(10*time.Minute, errReceiverDown)
				}), outbox.Rules{Expires: 5 * time.Minute, DropExpired: true})))
				require.NoError(t, e.Start(t.Context()))
				for i := range 30 {
					e.write(said(fmt.Sprint("e", i)))
				}
				time.Sleep(9 * time.Minute)
				for i := range 100 {
					e.write(said(fmt.Sprint("l", i)))
				}
				calls.Store(0)
				time.Sleep(5 * time.Minute)
				require.LessOrEqual(t, calls.Load(), int32(1))
				require.NoError(t, e.Close(context.Background()))
			})
		})
	}
}
