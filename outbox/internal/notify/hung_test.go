package notify_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox/internal/notify"
)

// hung is a channel that does not answer.
type hung struct{ bus }

func (*hung) Notify(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestManyCommitsWaitTogetherForANotifierThatHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &hung{}
		n := notify.New(b, nil, interval, slog.New(slog.DiscardHandler), errClosed)
		began := time.Now()
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				n.Notify()
				n.SendNow(t.Context())
			})
		}
		all.Wait()
		require.LessOrEqual(t, time.Since(began), time.Second)
		require.NoError(t, n.Close(t.Context()))
	})
}
