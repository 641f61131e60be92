package outbox_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// everyMode are the modes that deliver.
var everyMode = map[string]outbox.Mode{
	"single": outbox.SingleNode{}, "multi": outbox.MultiNode{},
	"by key": outbox.OrderedByKey{}, "ordered": outbox.Ordered{},
}

// A listener completes its event in a transaction of its own, in which it writes the
// next event.
func TestAListenerCompletesItsEventInEachMode(t *testing.T) {
	t.Parallel()
	for name, mode := range everyMode {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := &tallied{Store: outboxtest.NewStore()}
				var e *engine
				e = start(t, outbox.Config{Store: store, Mode: mode}, func(ctx context.Context, env outbox.Envelope) (outbox.Result, error) {
					scope := outboxtest.NewScope(store.DB())
					if err := e.Writer().Complete(ctx, scope); err != nil {
						return outbox.Done(), err
					}
					if env.EventID == "a-00002" {
						_, err := e.Writer().WriteScope(ctx, scope, []outbox.Envelope{of("a", "b")})
						require.NoError(t, err)
					}
					return outbox.Done(), scope.Commit()
				})
				e.write(numbered("a", 3)...)
				pass(time.Minute)
				require.Equal(t, map[outbox.Status]int{outbox.StatusDone: 4}, statuses(store.Store))
				require.Zero(t, store.marks.Load(), "outcomes beside those of the listener")
				require.NoError(t, e.Close(context.Background()))
			})
		})
	}
}

// A dead letter that is replayed is delivered at once, in each mode.
func TestADeadLetterIsReplayedInEachMode(t *testing.T) {
	t.Parallel()
	for name, mode := range everyMode {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var got calls
				e := start(t, outbox.Config{Mode: mode}, func(_ context.Context, env outbox.Envelope) (outbox.Result, error) {
					if got.add(env.EventID) == 1 {
						return outbox.Dead("broken"), nil
					}
					return outbox.Done(), nil
				})
				e.write(append(numbered("a", 2), numbered("b", 2)...)...)
				for range 2 { // under BlockKey the second event of a key dies later
					pass(time.Minute)
					_, err := e.DeadLetters().ReplayAll(t.Context(), outbox.DeadFilter{}, 1)
					require.NoError(t, err)
					pass(100 * time.Millisecond)
				}
				require.Equal(t, map[outbox.Status]int{outbox.StatusDone: 4}, statuses(e.store))
				events, deliveries := got.total()
				require.Equal(t, []int{4, 8}, []int{events, deliveries})
				require.NoError(t, e.Close(context.Background()))
			})
		})
	}
}
