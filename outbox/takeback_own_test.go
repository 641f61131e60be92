package outbox_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// A transaction takes back events that it has written itself, also if they are due at once. What a
// savepoint takes back, and is rolled back, is delivered as it was.
func TestATransactionTakesItsOwnEventsBack(t *testing.T) {
	t.Parallel()
	for name, mode := range takingModes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				at, content, begin := map[string]time.Duration{}, map[string]string{}, time.Now()
				var told []string
				hook := outbox.WriterHook{AfterCommit: func(_ context.Context, envs []outbox.Envelope) {
					for _, env := range envs {
						told = append(told, env.EventID)
					}
				}}
				e := start(t, outbox.Config{Mode: mode, Hooks: []outbox.WriterHook{hook}}, func(_ context.Context, env outbox.Envelope) error {
					mu.Lock()
					defer mu.Unlock()
					at[env.EventID], content[env.EventID] = time.Since(begin).Round(time.Second), env.Payload.String()
					return nil
				})
				scope := outboxtest.NewScope(e.store.DB())
				ctx := scope.Context(t.Context())
				var envs []outbox.Envelope
				for _, id := range []string{"cancelled", "by key", "later", "replaced", "both", "restored", "kept"} {
					env := said(id)
					if env.AggregateID = id; id == "both" {
						env.DeliverAfter = time.Hour
					}
					envs = append(envs, env)
				}
				_, err := e.Writer().WriteAll(ctx, envs)
				require.NoError(t, err)
				took := func(want outbox.TakenBack) func(outbox.TakenBack, error) {
					return func(n outbox.TakenBack, err error) {
						t.Helper()
						require.NoError(t, err)
						require.Equal(t, want, n)
					}
				}
				w := e.Writer()
				took(outbox.TakenBack{Changed: 1, Delivered: 1})(w.Cancel(ctx, byID("cancelled", "never written")))
				took(outbox.TakenBack{Delivered: 1})(w.Cancel(ctx, byID("cancelled")))
				took(outbox.TakenBack{})(w.Cancel(ctx, outbox.Waiting{Kind: outbox.EventKind{EventType: "Said"}, AggregateID: "by key", DueAfter: begin.Add(time.Hour)}))
				took(outbox.TakenBack{Changed: 1})(w.Cancel(ctx, outbox.Waiting{Kind: outbox.EventKind{EventType: "Said"}, AggregateID: "by key"}))
				took(outbox.TakenBack{Changed: 1})(w.Reschedule(ctx, byID("later"), begin.Add(time.Minute)))
				took(outbox.TakenBack{Changed: 1})(w.Replace(ctx, "replaced", outbox.Replacement{Payload: outbox.JSON("old")}))
				took(outbox.TakenBack{Changed: 1})(w.Replace(ctx, "replaced", outbox.Replacement{Payload: outbox.JSON("new")}))
				took(outbox.TakenBack{Changed: 1})(w.Reschedule(ctx, byID("both"), begin.Add(2*time.Minute)))
				took(outbox.TakenBack{Changed: 1})(w.Replace(ctx, "both", outbox.Replacement{Payload: outbox.JSON("new")}))
				require.NoError(t, scope.Savepoint("sp"))
				took(outbox.TakenBack{Changed: 1})(w.Cancel(ctx, byID("restored")))
				require.NoError(t, scope.RollbackTo("sp"))
				require.NoError(t, scope.Commit())
				time.Sleep(time.Hour)
				mu.Lock()
				defer mu.Unlock()
				require.Equal(t, map[string]time.Duration{"later": time.Minute, "replaced": 0, "both": 2 * time.Minute, "restored": 0, "kept": 0}, at)
				require.Equal(t, map[string]string{"later": `"later"`, "replaced": `"new"`, "both": `"new"`, "restored": `"restored"`, "kept": `"kept"`}, content)
				require.Equal(t, []string{"cancelled", "by key", "later", "replaced", "both", "restored", "kept"}, told, "hooks get all events of a write")
			})
		})
	}
}

// The events of another open transaction are not this transaction's, and after the commit an event may be
// in hand.
func TestATransactionTakesNoEventsOfOthersBack(t *testing.T) {
	t.Parallel()
	store := outboxtest.NewStore()
	w := store.Writer()
	scope := outboxtest.NewScope(store.DB())
	_, err := w.Write(scope.Context(t.Context()), said("e"))
	require.NoError(t, err)
	other := outboxtest.NewScope(store.DB())
	cancel := func(scope *outboxtest.Scope, want outbox.TakenBack) {
		t.Helper()
		n, err := w.Cancel(scope.Context(t.Context()), byID("e"))
		require.NoError(t, err)
		require.Equal(t, want, n)
	}
	cancel(other, outbox.TakenBack{Delivered: 1})
	require.NoError(t, scope.Commit())
	cancel(other, outbox.TakenBack{InHand: 1})
	require.NoError(t, other.Commit())
}
