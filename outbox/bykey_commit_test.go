package outbox_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// A commit on a process whose queue is full notifies the others.
func TestAFullProcessNotifiesTheOthersOfACommit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, bus := outboxtest.NewStore(), newBus()
		block := make(chan struct{})
		mode := outbox.OrderedByKey{Dispatch: outbox.DispatchOptions{Workers: 1, ColdCapacity: 4}, Poll: outbox.PollOptions{Interval: time.Hour}}
		full := start(t, outbox.Config{Store: store, Mode: mode, Notifier: bus}, func(context.Context, outbox.Envelope) error {
			<-block
			return nil
		})
		full.write(slices.Concat(numbered("a", 3), numbered("b", 3), numbered("c", 3))...)
		time.Sleep(time.Second)
		var d diary
		start(t, outbox.Config{Store: store, Mode: mode, Notifier: bus}, d.listen(nil))
		time.Sleep(time.Second)
		full.write(of("d", "new"))
		time.Sleep(time.Second)
		require.Equal(t, []string{"new"}, d.of("d"))
		close(block)
	})
}
