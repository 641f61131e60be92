package outbox_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// unique is an event with a unique key.
func unique(id, key string) outbox.Envelope {
	env := said(id)
	env.UniqueKey = key
	return env
}

// hotModes are modes whose events go the hot path, with a poller that does not look.
var hotModes = map[string]outbox.Mode{
	"SingleNode": outbox.SingleNode{Poll: outbox.PollOptions{Interval: time.Hour}},
	"MultiNode":  outbox.MultiNode{Poll: outbox.PollOptions{Interval: time.Hour}},
}

// A refused write must not reach the listener through the memory of the process, and the transaction
// goes on.
func TestAnEventWithAnIDThatIsThereIsForgotten(t *testing.T) {
	t.Parallel()
	for name, mode := range hotModes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var c calls
				e := start(t, outbox.Config{Mode: mode}, func(_ context.Context, env outbox.Envelope) error {
					c.add(env.EventID)
					return nil
				})
				e.write(said("a"))
				synctest.Wait()
				scope := outboxtest.NewScope(e.store.DB())
				for _, envs := range [][]outbox.Envelope{{said("a")}, {said("b"), said("a"), said("")}} {
					_, err := e.Writer().WriteScope(t.Context(), scope, envs)
					require.ErrorIs(t, err, outbox.ErrDuplicateEvent)
					var there *outbox.DuplicateEventError
					require.ErrorAs(t, err, &there)
					require.Equal(t, "a", there.EventID)
					require.Equal(t, []string{"a"}, there.EventIDs)
				}
				_, err := e.Writer().WriteScope(t.Context(), scope, []outbox.Envelope{said("b")})
				require.NoError(t, err)
				require.NoError(t, scope.Commit())
				synctest.Wait()
				require.Len(t, e.store.Rows(), 2)
				require.NoError(t, e.Close(t.Context()))
				require.Equal(t, map[string]int{"a": 1, "b": 1}, c.n)
			})
		})
	}
}

func TestAnEventWhoseKeyIsTakenIsSkipped(t *testing.T) {
	t.Parallel()
	for name, mode := range hotModes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				got := make(chan outbox.Envelope, 10)
				release := make(chan struct{})
				calls := outboxtest.NewRecorder()
				var during []string
				e := start(t, outbox.Config{Mode: mode, Hooks: []outbox.WriterHook{calls.Hook(), {AfterWrite: func(_ context.Context, envs []outbox.Envelope) {
					for _, env := range envs {
						during = append(during, env.EventID)
					}
				}}}}, func(_ context.Context, env outbox.Envelope) error {
					<-release
					got <- env
					return nil
				})
				scope := outboxtest.NewScope(e.store.DB())
				write := func(want []string, envs ...outbox.Envelope) {
					ids, err := e.Writer().WriteScope(t.Context(), scope, envs)
					require.NoError(t, err)
					require.Equal(t, want, ids)
				}
				later := unique("later", "later")
				later.DeliverAfter = time.Minute
				write([]string{"a", "x", "a", "later", "b"}, unique("a", "k"), said("x"), unique("skipped", "k"), later, unique("b", "j"))
				write([]string{"a"}, unique("skipped", "k"))
				write([]string{"later"}, unique("skipped", "later"))
				require.NoError(t, scope.Commit())
				scope = outboxtest.NewScope(e.store.DB())
				write([]string{"a"}, unique("skipped", "k")) // which is in hand
				require.NoError(t, scope.Commit())
				close(release)
				time.Sleep(time.Second) // until the outcomes are stored
				require.Equal(t, []string{"a", "x", "later", "b"}, during)
				var committed []string
				for _, env := range calls.Committed() {
					committed = append(committed, env.EventID)
				}
				require.Equal(t, during, committed)
				var delivered []string
				for range len(got) {
					env := <-got
					require.Empty(t, env.UniqueKey)
					delivered = append(delivered, env.EventID)
				}
				require.ElementsMatch(t, []string{"a", "x", "b"}, delivered)
				require.Len(t, e.store.Rows(), 4)

				scope = outboxtest.NewScope(e.store.DB())
				write([]string{"c"}, unique("c", "k")) // the key is free again
				require.NoError(t, scope.Commit())
				synctest.Wait()
				require.Equal(t, "c", (<-got).EventID)
				time.Sleep(2 * time.Minute)
				require.Equal(t, "later", (<-got).EventID)
				require.NoError(t, e.Close(t.Context()))
			})
		})
	}
}

// leasesOfMarks keeps the leases that marks name.
type leasesOfMarks struct {
	*outboxtest.Store
	mu    sync.Mutex
	names []string
}

func (s *leasesOfMarks) memory() *outboxtest.Store { return s.Store }

func (s *leasesOfMarks) Mark(ctx context.Context, db outbox.DB, outcome outbox.Outcome, marks []outbox.Mark) (map[string]outbox.RowState, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range marks {
		s.names = append(s.names, m.Lease)
	}
	return s.Store.Mark(ctx, db, outcome, marks)
}

// The rows of a write have the lease under which its events were reserved.
func TestASkippedEventLeavesTheOthersTheirLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var c calls
		store := &leasesOfMarks{Store: outboxtest.NewStore()}
		e := start(t, outbox.Config{Store: store, Mode: outbox.MultiNode{Poll: outbox.PollOptions{Interval: 10 * time.Millisecond}}},
			func(_ context.Context, env outbox.Envelope) error {
				c.add(env.EventID)
				return nil
			})
		e.write(unique("a", "k"), unique("skipped", "k"), said("b"))
		time.Sleep(time.Second)
		require.NoError(t, e.Close(t.Context()))
		require.Equal(t, map[string]int{"a": 1, "b": 1}, c.n)
		for _, row := range e.store.Rows() {
			require.Equal(t, outbox.StatusDone, row.Status)
		}
		require.Len(t, store.names, 2)
		require.NotContains(t, store.names, "")
	})
}

// countingOnce counts the calls of a store.
type countingOnce struct {
	*outboxtest.Store
	once int
}

func (s *countingOnce) InsertOnce(ctx context.Context, tx outbox.Execer, envs []outbox.Envelope, lease string, due time.Time) ([]string, error) {
	s.once++
	return s.Store.InsertOnce(ctx, tx, envs, lease, due)
}

// Events whose ids the writer made are inserted as always.
func TestOnlyWhatSomebodyChoseIsInsertedOnce(t *testing.T) {
	t.Parallel()
	set := func(change func(env *outbox.Envelope)) outbox.WriterHook {
		return outbox.WriterHook{BeforeWrite: func(_ context.Context, envs []outbox.Envelope) ([]outbox.Envelope, error) {
			for i := range envs {
				change(&envs[i])
			}
			return envs, nil
		}}
	}
	for name, test := range map[string]struct {
		envs  []outbox.Envelope
		hooks []outbox.WriterHook
		want  int
	}{
		"no ids":            {envs: []outbox.Envelope{said(""), said("")}},
		"an id":             {envs: []outbox.Envelope{said(""), said("a")}, want: 1},
		"a key":             {envs: []outbox.Envelope{unique("", "k"), said("")}, want: 1},
		"a hook's header":   {envs: []outbox.Envelope{said(""), said("")}, hooks: []outbox.WriterHook{set(func(env *outbox.Envelope) { env.TenantID = "t" })}},
		"a hook's key":      {envs: []outbox.Envelope{said("")}, hooks: []outbox.WriterHook{set(func(env *outbox.Envelope) { env.UniqueKey = "k" })}, want: 1},
		"a hook's id":       {envs: []outbox.Envelope{said("")}, hooks: []outbox.WriterHook{set(func(env *outbox.Envelope) { env.EventID = "h" })}, want: 1},
		"no id from a hook": {envs: []outbox.Envelope{said("")}, hooks: []outbox.WriterHook{set(func(env *outbox.Envelope) { env.EventID = "" })}},
		"a hook's filter": {envs: []outbox.Envelope{said(""), said(""), said("")}, hooks: []outbox.WriterHook{{
			BeforeWrite: func(_ context.Context, envs []outbox.Envelope) ([]outbox.Envelope, error) {
				return slices.Delete(envs, 1, 2), nil
			},
		}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := &countingOnce{Store: outboxtest.NewStore()}
			ob, err := outbox.New(outbox.Config{DB: store.DB(), Store: store, Mode: outbox.WriterOnly{}, Hooks: test.hooks})
			require.NoError(t, err)
			_, err = ob.Writer().WriteScope(t.Context(), outboxtest.NewScope(store.DB()), test.envs)
			require.NoError(t, err)
			require.Equal(t, test.want, store.once)
		})
	}
}

func TestAUniqueKeyHasALimit(t *testing.T) {
	t.Parallel()
	require.NoError(t, unique("", strings.Repeat("é", 128)).Validate())
	require.ErrorContains(t, unique("", strings.Repeat("é", 129)).Validate(), "Envelope.UniqueKey is 129 characters long; the limit is 128")
	require.ErrorContains(t, unique("", "a\x00").Validate(), "Envelope.UniqueKey")
}

// With an Execer that sends the statement later, the answer says whether there is a row.
func TestAStagedWriteWhoseIDIsThere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := start(t, outbox.Config{}, handled)
		_, err := e.Writer().Stage(t.Context(), []outbox.Envelope{unique("", "k")})
		require.ErrorIs(t, err, outbox.ErrInvalidEnvelope)
		require.ErrorContains(t, err, "Envelope.UniqueKey")

		w, err := e.Writer().Stage(t.Context(), []outbox.Envelope{said("e")})
		require.NoError(t, err)
		scope := outboxtest.NewScope(e.store.DB())
		require.NoError(t, w.Send(t.Context(), scope))
		require.True(t, e.store.SetRow("e", outboxtest.RawRow{}))
		require.ErrorIs(t, w.Inserted(t.Context(), scope, 0), outbox.ErrDuplicateEvent)
		require.NoError(t, scope.Commit())
		synctest.Wait()

		own, err := e.Writer().Stage(t.Context(), []outbox.Envelope{said("")}) // a trigger may hide the row
		require.NoError(t, err)
		scope = outboxtest.NewScope(e.store.DB())
		require.NoError(t, own.Send(t.Context(), scope))
		require.NoError(t, own.Inserted(t.Context(), scope, 0))
		require.NoError(t, scope.Commit())
		e.await(own.EventIDs()[0], outbox.StatusDone)
		require.NoError(t, e.Close(t.Context()))
	})
}

func TestAWriteOutsideOfTheScopeIsSkippedToo(t *testing.T) {
	t.Parallel()
	during := 0
	w, store := writing(t, outbox.WriterHook{AfterWrite: func(context.Context, []outbox.Envelope) { during++ }})
	for _, id := range []string{"a", "skipped"} {
		ids, err := w.WriteUnmanaged(t.Context(), store.DB(), []outbox.Envelope{unique(id, "k")})
		require.NoError(t, err)
		require.Equal(t, []string{"a"}, ids)
	}
	_, err := w.WriteUnmanaged(t.Context(), store.DB(), []outbox.Envelope{said("a")})
	require.ErrorIs(t, err, outbox.ErrDuplicateEvent)
	require.Equal(t, 1, during)
	require.Len(t, store.Rows(), 1)
}

func TestAReplaySaysWhichLettersStayDead(t *testing.T) {
	t.Parallel()
	w, store := writing(t)
	write := func(env outbox.Envelope) {
		_, err := w.WriteUnmanaged(t.Context(), store.DB(), []outbox.Envelope{env})
		require.NoError(t, err)
	}
	for _, id := range []string{"a", "b", "c", "d", "e"} {
		write(unique(id, "k"))
		row, _ := store.Row(id)
		row.Status, row.DoneAt = outbox.StatusDead, time.Now().UTC().Add(-time.Hour)
		require.True(t, store.SetRow(id, row.RawRow))
	}
	write(unique("pending", "k"))
	write(unique("other", "j"))
	row, _ := store.Row("other")
	row.Status, row.DoneAt = outbox.StatusDead, time.Now().UTC().Add(-time.Hour)
	require.True(t, store.SetRow("other", row.RawRow))
	dead, err := outbox.NewDeadLetters(store.DB(), store)
	require.NoError(t, err)

	err = dead.Replay(t.Context(), "c")
	require.ErrorIs(t, err, outbox.ErrKeyTaken)
	require.NotErrorIs(t, err, outbox.ErrNotFound)
	progress := 0
	n, err := dead.ReplayAll(t.Context(), outbox.DeadFilter{}, 2, outbox.OnProgress(func(done int) { progress = done }))
	require.Equal(t, 1, n)
	require.Equal(t, 1, progress)
	var taken *outbox.KeyTakenError
	require.True(t, errors.As(err, &taken))
	require.Equal(t, outbox.KeyTakenError{EventID: "a", Letters: 5}, *taken)
	require.ErrorContains(t, err, "5 dead letters stay dead, a first")
	left, err := dead.Count(t.Context(), outbox.DeadFilter{})
	require.NoError(t, err)
	require.EqualValues(t, 5, left)
}
