package outbox_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// vandal is a hook that changes everything it is given, and remembers what it
// was given.
func vandal(seen *[]string) outbox.WriterHook {
	ruin := func(envs []outbox.Envelope) {
		for i := range envs {
			*seen = append(*seen, envs[i].EventID+" "+envs[i].Headers["k"])
			envs[i].Headers["k"] = "ruined"
			envs[i] = outbox.Envelope{EventID: "ruined"}
		}
	}
	return outbox.WriterHook{
		AfterWrite:    func(_ context.Context, envs []outbox.Envelope) { ruin(envs) },
		AfterCommit:   func(_ context.Context, envs []outbox.Envelope) { ruin(envs) },
		AfterRollback: func(_ context.Context, envs []outbox.Envelope, _ error) { ruin(envs) },
	}
}

func TestWhatHooksDoToTheirEnvelopesHasNoEffect(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]outbox.Mode{
		"one node": outbox.SingleNode{Poll: outbox.PollOptions{Interval: time.Hour}}, "many nodes": outbox.MultiNode{Poll: outbox.PollOptions{Interval: time.Hour}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var seen []string
			got := make(chan outbox.Envelope, 1)
			e := start(t, outbox.Config{Mode: mode, Hooks: []outbox.WriterHook{vandal(&seen), vandal(&seen)}},
				func(_ context.Context, env outbox.Envelope) error {
					env.Headers["k"] += " and read" // it owns the map for now
					got <- env
					return nil
				})
			event := said("e")
			event.Headers = map[string]string{"k": "v"}

			// The reservation of what was rolled back is given up.
			scope := outboxtest.NewScope(e.store.DB())
			_, err := e.Writer().WriteScope(t.Context(), scope, []outbox.Envelope{event})
			require.NoError(t, err)
			require.NoError(t, scope.Rollback(nil))
			require.Equal(t, []string{"e v", "e v", "e v", "e v"}, seen)

			seen = nil
			require.Equal(t, []string{"e"}, e.write(event))
			env := receive(t, got)
			require.Equal(t, "e", env.EventID)
			require.Equal(t, "v and read", env.Headers["k"])
			require.Equal(t, []string{"e v", "e v", "e v", "e v"}, seen)
			e.await("e", outbox.StatusDone)
		})
	}
}

func TestAHookOfAnUnmanagedWriteKeepsNoHoldOnItsIDs(t *testing.T) {
	t.Parallel()
	var seen []string
	w, store := writing(t, vandal(&seen))
	event := said("e")
	event.Headers = map[string]string{"k": "v"}
	ids, err := w.WriteUnmanaged(t.Context(), store.DB(), []outbox.Envelope{event})
	require.NoError(t, err)
	require.Equal(t, []string{"e"}, ids)
	require.Equal(t, []string{"e v"}, seen)
}
