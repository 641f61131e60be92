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

// A listener's own transaction completes no event before the outcome of the event
// before it is stored.
func TestAnEventIsNotCompletedBeforeTheOneBeforeIt(t *testing.T) {
	t.Parallel()
	for name, refused := range map[string]bool{"stored soon": false, "not stored": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := &cutOff{Store: outboxtest.NewStore()}
				if refused {
					refuse := func(marks []outbox.Mark) bool { return marks[0].EventID == "a-00000" }
					store.refuse.Store(&refuse)
				}
				var e *engine
				var errs []error
				e = build(t, outbox.Config{Store: store, Mode: outbox.OrderedByKey{}}, func(ctx context.Context, env outbox.Envelope) (outbox.Result, error) {
					if env.EventID == "a-00000" {
						return outbox.Done(), nil
					}
					scope := outboxtest.NewScope(store.DB())
					err := e.Writer().Complete(ctx, scope)
					if errs = append(errs, err); err != nil {
						_ = scope.Rollback(nil)
						return outbox.Done(), err
					}
					row, _ := store.Row("a-00000")
					require.Equal(t, outbox.StatusDone, row.Status)
					return outbox.Done(), scope.Commit()
				})
				e.write(numbered("a", 2)...)
				require.NoError(t, e.Start(t.Context()))
				time.Sleep(10 * time.Second)
				synctest.Wait()
				if refused {
					require.ErrorContains(t, errs[0], "the outcome of the event before it, of the same key, is not stored yet")
					row, _ := store.Row("a-00001")
					require.Equal(t, outbox.StatusNew, row.Status)
					store.refuse.Store(nil)
					time.Sleep(20 * time.Second)
					synctest.Wait()
				}
				require.NoError(t, errs[len(errs)-1])
				require.Equal(t, map[outbox.Status]int{outbox.StatusDone: 2}, statuses(store.Store))
			})
		})
	}
}

// A commit on a process whose queue is full notifies the others.
func TestAFullProcessNotifiesTheOthersOfACommit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, bus := outboxtest.NewStore(), newBus()
		block := make(chan struct{})
		mode := outbox.OrderedByKey{Dispatch: outbox.DispatchOptions{Workers: 1, ColdCapacity: 4}, Poll: outbox.PollOptions{Interval: time.Hour}}
		full := start(t, outbox.Config{Store: store, Mode: mode, Notifier: bus}, func(context.Context, outbox.Envelope) (outbox.Result, error) {
			<-block
			return outbox.Done(), nil
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
