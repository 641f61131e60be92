package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// writing is a writer on a store in memory, without an engine.
func writing(t *testing.T, hooks ...outbox.WriterHook) (*outbox.Writer, *outboxtest.Store) {
	t.Helper()
	store := outboxtest.NewStore()
	return store.Writer(hooks...), store
}

func TestWritingNeedsATransactionOfTheSameSource(t *testing.T) {
	t.Parallel()
	w, store := writing(t)
	ctx := t.Context()
	for name, write := range map[string]func(ctx context.Context) error{
		"one":  func(ctx context.Context) error { _, err := w.Write(ctx, said("a")); return err },
		"all":  func(ctx context.Context) error { _, err := w.WriteAll(ctx, []outbox.Envelope{said("a")}); return err },
		"none": func(ctx context.Context) error { _, err := w.WriteAll(ctx, nil); return err },
		"bad":  func(ctx context.Context) error { _, err := w.Write(ctx, outbox.Envelope{}); return err },
	} {
		require.ErrorIs(t, write(ctx), outbox.ErrNoTransaction, name)
		foreign := outbox.ContextWithScope(ctx, outboxtest.NewScope(new(int)))
		require.ErrorIs(t, write(foreign), outbox.ErrForeignTransaction, name)
		require.ErrorIs(t, write(foreign), outbox.ErrNoTransaction, name)
		over := outboxtest.NewScope(store.DB())
		require.NoError(t, over.Commit())
		require.ErrorIs(t, write(outbox.ContextWithScope(ctx, over)), outbox.ErrNoTransaction, name)
	}
	_, err := w.WriteScope(ctx, outboxtest.NewScope(new(int)), []outbox.Envelope{said("a")})
	require.ErrorIs(t, err, outbox.ErrForeignTransaction)
	_, err = w.WriteScope(ctx, nil, []outbox.Envelope{said("a")})
	require.ErrorIs(t, err, outbox.ErrNoTransaction)
	_, err = w.WriteUnmanaged(ctx, nil, []outbox.Envelope{said("a")})
	require.ErrorIs(t, err, outbox.ErrNoTransaction)
}

func TestEachWriterFindsItsOwnTransaction(t *testing.T) {
	t.Parallel()
	w1, store1 := writing(t)
	w2, store2 := writing(t)
	s1, s2 := outboxtest.NewScope(store1.DB()), outboxtest.NewScope(store2.DB())
	ctx := outbox.ContextWithScope(outbox.ContextWithScope(t.Context(), s1), s2)
	_, err := w1.Write(ctx, said("one"))
	require.NoError(t, err)
	_, err = w2.Write(ctx, said("two"))
	require.NoError(t, err)
	require.NoError(t, s1.Commit())
	require.NoError(t, s2.Rollback(nil))
	_, found := store1.Row("one")
	require.True(t, found)
	_, found = store2.Row("two")
	require.False(t, found)
}

func TestIDsComeBackInOrder(t *testing.T) {
	t.Parallel()
	w, store := writing(t)
	scope := outboxtest.NewScope(store.DB())
	ctx := outbox.ContextWithScope(t.Context(), scope)
	ids, err := w.WriteAll(ctx, []outbox.Envelope{said("x"), said(""), said("a"), said("")})
	require.NoError(t, err)
	require.Len(t, ids, 4)
	require.Equal(t, "x", ids[0])
	require.Equal(t, "a", ids[2])
	require.Less(t, ids[1], ids[3], "ids that are made rise")
	ids, err = w.WriteAll(ctx, nil)
	require.NoError(t, err)
	require.NotNil(t, ids)
	require.Empty(t, ids)
}

func TestWritingNeverTouchesTheCallersEnvelope(t *testing.T) {
	t.Parallel()
	var written []outbox.Envelope
	w, store := writing(t, outbox.WriterHook{AfterWrite: func(_ context.Context, envs []outbox.Envelope) { written = envs }})
	env := outbox.Envelope{EventType: "Said", Payload: outbox.JSON(1), Headers: map[string]string{"k": "v"}, Attempts: 7}
	scope := outboxtest.NewScope(store.DB())
	id, err := w.Write(outbox.ContextWithScope(t.Context(), scope), env)
	require.NoError(t, err)
	require.NotEmpty(t, id)
	require.Empty(t, env.EventID)
	require.True(t, env.OccurredAt.IsZero())
	env.Headers["k"] = "changed later"
	require.Equal(t, "v", written[0].Headers["k"])
	require.Zero(t, written[0].Attempts)
}

func TestInvalidEnvelopesWriteNothing(t *testing.T) {
	t.Parallel()
	w, store := writing(t)
	scope := outboxtest.NewScope(store.DB())
	ctx := outbox.ContextWithScope(t.Context(), scope)
	bad := said("bad")
	bad.TenantID = strings.Repeat("x", 65)
	_, err := w.WriteAll(ctx, []outbox.Envelope{said("good"), bad})
	require.ErrorIs(t, err, outbox.ErrInvalidEnvelope)
	require.ErrorContains(t, err, "event 1 of 2")
	_, err = w.WriteAll(ctx, []outbox.Envelope{said("twice"), said("other"), said("twice")})
	require.ErrorIs(t, err, outbox.ErrInvalidEnvelope)
	require.ErrorContains(t, err, `"twice" is given twice: to events 0 and 2 of 3`)
	require.NoError(t, scope.Commit())
	require.Empty(t, store.Rows())
}

func TestBeforeWriteChangesFiltersAndAborts(t *testing.T) {
	t.Parallel()
	refusal := errors.New("refused")
	var seen []string
	hook := outbox.WriterHook{
		BeforeWrite: func(_ context.Context, envs []outbox.Envelope) ([]outbox.Envelope, error) {
			var kept []outbox.Envelope
			for _, env := range envs {
				switch env.EventID {
				case "drop":
				case "abort":
					return nil, refusal
				case "panic":
					panic("in the hook")
				case "spoil":
					env.TenantID = strings.Repeat("x", 65)
					kept = append(kept, env)
				default:
					env.Headers = map[string]string{"by": "hook"}
					kept = append(kept, env)
				}
			}
			return kept, nil
		},
		AfterWrite: func(_ context.Context, envs []outbox.Envelope) {
			for _, env := range envs {
				seen = append(seen, env.EventID+env.Headers["by"])
			}
		},
	}
	w, store := writing(t, hook, outbox.WriterHook{}) // a hook of nil funcs is fine
	scope := outboxtest.NewScope(store.DB())
	ctx := outbox.ContextWithScope(t.Context(), scope)

	ids, err := w.WriteAll(ctx, []outbox.Envelope{said("drop"), said("keep")})
	require.NoError(t, err)
	require.Equal(t, []string{"keep"}, ids)
	id, err := w.Write(ctx, said("drop"))
	require.NoError(t, err, "suppressed is no error")
	require.Empty(t, id)
	_, err = w.Write(ctx, said("abort"))
	require.ErrorIs(t, err, refusal)
	_, err = w.Write(ctx, said("panic"))
	require.ErrorContains(t, err, "in the hook")
	_, err = w.Write(ctx, said("spoil"))
	require.ErrorIs(t, err, outbox.ErrInvalidEnvelope, "what a hook returns is checked again")
	require.NoError(t, scope.Commit())
	require.Len(t, store.Rows(), 1)
	require.Equal(t, []string{"keephook"}, seen)
}

func TestHooksRunInOrderOncePerCallAndCannotFailTheCaller(t *testing.T) {
	t.Parallel()
	var got []string
	hook := func(name string) outbox.WriterHook {
		note := func(what string, envs []outbox.Envelope) {
			got = append(got, fmt.Sprintf("%s %s %d", name, what, len(envs)))
			panic("hooks may panic")
		}
		return outbox.WriterHook{
			AfterWrite:  func(_ context.Context, envs []outbox.Envelope) { note("written", envs) },
			AfterCommit: func(_ context.Context, envs []outbox.Envelope) { note("committed", envs) },
			AfterRollback: func(_ context.Context, envs []outbox.Envelope, cause error) {
				note(fmt.Sprint("rolled back (", cause, ")"), envs)
			},
		}
	}
	w, store := writing(t, hook("1"), hook("2"))
	for name, tc := range map[string]struct {
		end  func(*outboxtest.Scope)
		want []string
	}{
		"commit":   {func(s *outboxtest.Scope) { require.NoError(t, s.Commit()) }, []string{"1 written 2", "2 written 2", "1 committed 2", "2 committed 2"}},
		"rollback": {func(s *outboxtest.Scope) { require.NoError(t, s.Rollback(nil)) }, []string{"1 written 2", "2 written 2", "1 rolled back (<nil>) 2", "2 rolled back (<nil>) 2"}},
	} {
		got = nil
		scope := outboxtest.NewScope(store.DB())
		_, err := w.WriteScope(t.Context(), scope, []outbox.Envelope{said(""), said("")})
		require.NoError(t, err)
		tc.end(scope)
		require.Equal(t, tc.want, got, name)
	}
}

func TestUnknownOutcomeIsLeftToThePoller(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]outbox.Mode{
		"single node": outbox.SingleNode{Poll: outbox.PollOptions{Interval: time.Hour}},
		"multi node":  outbox.MultiNode{Poll: outbox.PollOptions{Interval: time.Hour}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var c calls
			causes := make(chan error, 1)
			e := start(t, outbox.Config{Mode: mode, Hooks: []outbox.WriterHook{{
				AfterRollback: func(_ context.Context, _ []outbox.Envelope, cause error) { causes <- cause },
			}}}, func(_ context.Context, env outbox.Envelope) error {
				c.add(env.EventID)
				return nil
			})
			scope := outboxtest.NewScope(e.store.DB())
			_, err := e.Writer().WriteScope(t.Context(), scope, []outbox.Envelope{said("maybe")})
			require.NoError(t, err)
			require.NoError(t, scope.CommitUnknown(true)) // it was committed, and the answer was lost
			require.ErrorIs(t, receive(t, causes), outbox.ErrOutcomeUnknown)
			e.await("maybe", outbox.StatusDone)
			require.Equal(t, map[string]int{"maybe": 1}, c.n)
		})
	}
}

func TestUnmanagedEventsAreLookedForSoon(t *testing.T) {
	t.Parallel()
	e := start(t, outbox.Config{Mode: outbox.MultiNode{Poll: outbox.PollOptions{Interval: time.Hour}}},
		func(context.Context, outbox.Envelope) error { return nil })
	scope := outboxtest.NewScope(e.store.DB())
	_, err := e.Writer().WriteUnmanaged(t.Context(), scope, []outbox.Envelope{said("unmanaged")})
	require.NoError(t, err)
	<-time.After(30 * time.Millisecond) // the commit comes after the first look
	require.NoError(t, scope.Commit())
	e.await("unmanaged", outbox.StatusDone)
}
