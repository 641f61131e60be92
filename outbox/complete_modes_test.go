package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// everyMode are the modes that deliver.
var everyMode = map[string]outbox.Mode{
	"single": outbox.SingleNode{}, "multi": outbox.MultiNode{}, "tenants": outbox.MultiNode{Claim: outbox.ClaimOptions{TenantsInTurn: true}},
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
				e = start(t, outbox.Config{Store: store, Mode: mode}, func(ctx context.Context, env outbox.Envelope) error {
					scope := outboxtest.NewScope(store.DB())
					if err := e.Writer().Complete(ctx, scope); err != nil {
						return err
					}
					if env.EventID == "a-00002" {
						_, err := e.Writer().WriteScope(ctx, scope, []outbox.Envelope{of("a", "b")})
						require.NoError(t, err)
					}
					return scope.Commit()
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
				e := start(t, outbox.Config{Mode: mode}, func(_ context.Context, env outbox.Envelope) error {
					if got.add(env.EventID) == 1 {
						return outbox.Dead(errors.New("broken"))
					}
					return nil
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

// A listener's own transaction completes no event before the outcomes of the events before
// it are stored. If these cannot be stored, the event is given back: it is neither DEAD nor
// passed by the events behind it.
func TestAnEventIsNotCompletedBeforeTheOneBeforeIt(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]outbox.Mode{
		"by key": outbox.OrderedByKey{Dispatch: outbox.DispatchOptions{MarkInterval: time.Hour}}, "ordered": outbox.Ordered{},
	} {
		for _, refused := range []bool{false, true} {
			t.Run(fmt.Sprint(name, "/cannot be stored ", refused), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { completeInTurn(t, mode, refused) })
			})
		}
	}
}

func completeInTurn(t *testing.T, mode outbox.Mode, refused bool) {
	store := &cutOff{Store: outboxtest.NewStore()}
	if refused {
		refuse := func([]outbox.Mark) bool { return true }
		store.refuse.Store(&refuse)
	}
	var e *engine
	var errs []error
	var done []string
	e = build(t, outbox.Config{Store: store, Mode: mode}, func(ctx context.Context, env outbox.Envelope) error {
		if env.EventID != "a-00002" {
			time.Sleep(time.Second) // so the first outcome is stored before the second one comes
			done = append(done, env.EventID)
			return nil
		}
		scope := outboxtest.NewScope(store.DB())
		err := e.Writer().Complete(ctx, scope)
		if errs = append(errs, err); err != nil {
			_ = scope.Rollback(nil)
			return err
		}
		for _, id := range []string{"a-00000", "a-00001"} {
			row, _ := store.Row(id)
			require.Equal(t, outbox.StatusDone, row.Status)
		}
		done = append(done, env.EventID)
		return scope.Commit()
	})
	e.write(numbered("a", 4)...)
	require.NoError(t, e.Start(t.Context()))
	pass(10 * time.Second)
	if refused {
		require.ErrorContains(t, errs[0], "the outcome of an event before it is not stored yet")
		row, _ := store.Row("a-00002")
		require.Equal(t, outbox.StatusNew, row.Status)
		require.Equal(t, []string{"a-00000", "a-00001"}, done)
		store.refuse.Store(nil)
		pass(20 * time.Second)
	} else {
		require.Len(t, errs, 1)
	}
	require.NoError(t, errs[len(errs)-1])
	require.Equal(t, []string{"a-00000", "a-00001", "a-00002", "a-00003"}, done)
	row, _ := store.Row("a-00002")
	require.Equal(t, outbox.StatusDone, row.Status)
	require.Zero(t, row.Attempts)
	require.NoError(t, e.Close(context.Background()))
	require.Equal(t, map[outbox.Status]int{outbox.StatusDone: 4}, statuses(store.Store))
}
