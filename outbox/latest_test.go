package outbox_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// state is an event with the latest state of the key k.
func state(id, payload string, by time.Duration) outbox.Envelope {
	env := unique(id, "k")
	env.KeepLatest, env.Payload, env.DeliverAfter = true, outbox.RawJSON(payload), by
	return env
}

// latestModes are all modes that deliver, with pollers that do not look unless they are woken.
var latestModes = map[string]outbox.Mode{
	"single node": outbox.SingleNode{Poll: outbox.PollOptions{Interval: time.Hour}}, "ordered": outbox.Ordered{Poll: outbox.PollOptions{Interval: time.Hour}},
	"many nodes": outbox.MultiNode{Poll: outbox.PollOptions{Interval: time.Hour}}, "by key": outbox.OrderedByKey{Poll: outbox.PollOptions{Interval: time.Hour}},
}

func TestTheLatestStateIsDeliveredWhenItIsDue(t *testing.T) {
	t.Parallel()
	type delivery struct {
		id, payload string
		after       time.Duration
	}
	for name, mode := range latestModes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var all []delivery
				got := func() []delivery {
					mu.Lock()
					defer mu.Unlock()
					return slices.Clone(all)
				}
				began, goOn := time.Now(), make(chan struct{})
				calls := outboxtest.NewRecorder()
				e := start(t, outbox.Config{Mode: mode, Hooks: []outbox.WriterHook{calls.Hook()}}, func(_ context.Context, env outbox.Envelope) error {
					mu.Lock()
					all = append(all, delivery{env.EventID, env.Payload.String(), time.Since(began).Truncate(time.Second)})
					mu.Unlock()
					if env.Payload.String() == "5" {
						<-goOn
					}
					return nil
				})
				write := func(want string, env outbox.Envelope, end func(scope *outboxtest.Scope) error) {
					scope := outboxtest.NewScope(e.store.DB())
					ids, err := e.Writer().WriteScope(t.Context(), scope, []outbox.Envelope{env})
					require.NoError(t, err)
					require.Equal(t, []string{want}, ids)
					require.NoError(t, end(scope))
				}
				commit, rollback := (*outboxtest.Scope).Commit, func(scope *outboxtest.Scope) error { return scope.Rollback(nil) }
				write("a", state("a", "1", time.Minute), commit)
				time.Sleep(30 * time.Second)
				write("a", state("b", "2", time.Minute), commit) // later
				write("a", state("c", "3", time.Second), rollback)
				time.Sleep(45 * time.Second)
				require.Empty(t, got())
				write("a", state("d", "4", 5*time.Second), commit) // sooner
				time.Sleep(time.Minute)
				require.Equal(t, []delivery{{"a", "4", 80 * time.Second}}, got())

				write("e", state("e", "5", 0), commit) // the key is free again
				time.Sleep(time.Second)
				require.Len(t, got(), 2, "without a delay, the event is delivered at once")
				write("f", state("f", "6", time.Minute), commit) // the event e is in hand
				write("f", state("g", "7", time.Minute), commit)
				close(goOn)
				time.Sleep(2 * time.Minute)
				require.Len(t, got(), 3)
				require.Equal(t, "7", got()[2].payload)
				require.Equal(t, "f", got()[2].id)
				require.Len(t, e.store.Rows(), 3)
				var committed []string
				for _, env := range calls.Committed() {
					committed = append(committed, env.EventID)
				}
				require.Equal(t, []string{"a", "e", "f"}, committed)
				require.Empty(t, calls.RolledBack())
				require.NoError(t, e.Close(t.Context()))
			})
		})
	}
}

// A row that becomes due while a transaction replaces its state waits for the end of the transaction.
func TestAStateWaitsForTheTransactionThatReplacesIt(t *testing.T) {
	t.Parallel()
	for name, mode := range latestModes {
		for _, commits := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					got := make(chan string, 10)
					e := start(t, outbox.Config{Mode: mode}, func(_ context.Context, env outbox.Envelope) error {
						got <- env.Payload.String()
						return nil
					})
					e.write(state("a", "1", time.Minute))
					scope := outboxtest.NewScope(e.store.DB())
					_, err := e.Writer().WriteScope(t.Context(), scope, []outbox.Envelope{state("b", "2", time.Second)})
					require.NoError(t, err)
					time.Sleep(2 * time.Minute)
					require.Empty(t, got)
					want := "1"
					if commits {
						want = "2"
						require.NoError(t, scope.Commit())
					} else {
						require.NoError(t, scope.Rollback(nil))
					}
					time.Sleep(2 * time.Second)
					require.Len(t, got, 1)
					require.Equal(t, want, <-got)
					require.NoError(t, e.Close(t.Context()))
				})
			})
		}
	}
}

func TestKeepLatestNeedsAUniqueKey(t *testing.T) {
	t.Parallel()
	env := said("a")
	env.KeepLatest = true
	require.ErrorContains(t, env.Validate(), "Envelope.KeepLatest needs a UniqueKey")
	env.UniqueKey = "k"
	require.NoError(t, env.Validate())
}
