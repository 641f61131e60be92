package txscope_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/txscope"
	"github.com/outboxkit/outbox-go/outbox"
)

// model is transactions as nested lists: a savepoint opens a level, a release
// appends the level to the one around it.
type model struct {
	levels []level
	log    []string
}

type level struct {
	savepoint string
	ids       []int
}

func (m *model) top() *level { return &m.levels[len(m.levels)-1] }

// level is the index of the newest level of that name, or 0: the transaction.
func (m *model) level(name string) int {
	for i := len(m.levels) - 1; i > 0; i-- {
		if m.levels[i].savepoint == name {
			return i
		}
	}
	return 0
}

func (m *model) release(name string) {
	at := m.level(name)
	if at == 0 {
		return
	}
	for _, l := range m.levels[at:] {
		m.levels[at-1].ids = append(m.levels[at-1].ids, l.ids...)
	}
	m.levels = m.levels[:at]
}

func (m *model) rollbackTo(name string) {
	at := m.level(name)
	if at == 0 {
		return
	}
	for _, l := range m.levels[at:] {
		for _, id := range l.ids {
			m.log = append(m.log, fmt.Sprintf("rollback %d", id))
		}
	}
	m.levels = append(m.levels[:at], level{savepoint: name})
}

func (m *model) finish(end txscope.End) {
	word := map[txscope.End]string{txscope.Committed: "commit", txscope.RolledBack: "rollback", txscope.Unknown: "unknown"}[end]
	for _, l := range m.levels {
		for _, id := range l.ids {
			m.log = append(m.log, fmt.Sprintf("%s %d", word, id))
		}
	}
}

func TestHooksAgreeWithTheModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(5000) {
		r := rand.New(rand.NewPCG(seed, 1))
		m := &model{levels: []level{{}}}
		var hooks txscope.Hooks
		var log, script []string
		names := func() (known []string) {
			for _, l := range m.levels[1:] {
				known = append(known, l.savepoint)
			}
			return known
		}
		for id := range r.IntN(40) {
			known := names()
			switch op := r.IntN(8); {
			case op < 4:
				script = append(script, fmt.Sprintf("register %d", id))
				m.top().ids = append(m.top().ids, id)
				require.NoError(t, hooks.AfterCommit(func(context.Context) { log = append(log, fmt.Sprintf("commit %d", id)) }))
				require.NoError(t, hooks.AfterRollback(func(_ context.Context, cause error) {
					word := "rollback"
					if errors.Is(cause, outbox.ErrOutcomeUnknown) {
						word = "unknown"
					}
					log = append(log, fmt.Sprintf("%s %d", word, id))
				}))
			case op < 6:
				name := string(rune('a' + r.IntN(3)))
				script = append(script, "savepoint "+name)
				m.levels = append(m.levels, level{savepoint: name})
				hooks.Savepoint(name)
			case len(known) == 0:
			case op == 6:
				name := known[r.IntN(len(known))]
				script = append(script, "release "+name)
				m.release(name)
				hooks.Release(name)
			default:
				name := known[r.IntN(len(known))]
				script = append(script, "rollback to "+name)
				m.rollbackTo(name)
				txscope.Run(t.Context(), hooks.RollbackTo(name))
			}
			held := false
			for _, l := range m.levels {
				held = held || len(l.ids) > 0
			}
			require.Equal(t, held, hooks.Held(), "seed %d: %v", seed, script)
		}
		end := txscope.End(r.IntN(3))
		script = append(script, end.String())
		m.finish(end)
		txscope.Run(t.Context(), hooks.Finish(end, nil))
		txscope.Run(t.Context(), hooks.Finish(txscope.Committed, nil))
		require.Equal(t, m.log, log, "seed %d: %v", seed, script)
	}
}

// calls registers both callbacks of an event and notes what runs.
func calls(t *testing.T, hooks *txscope.Hooks, log *[]string, name string) {
	t.Helper()
	require.NoError(t, hooks.AfterCommit(func(context.Context) { *log = append(*log, "commit "+name) }))
	require.NoError(t, hooks.AfterRollback(func(_ context.Context, cause error) {
		*log = append(*log, fmt.Sprintf("rollback %s %v", name, errors.Is(cause, outbox.ErrOutcomeUnknown)))
	}))
}

func TestRollbackToUnseenSavepointLeavesItOpen(t *testing.T) {
	t.Parallel()
	for end, want := range map[txscope.End][]string{
		txscope.Committed:  {"rollback a true", "commit b"},
		txscope.RolledBack: {"rollback a false", "rollback b false"},
		txscope.Unknown:    {"rollback a true", "rollback b true"},
	} {
		var hooks txscope.Hooks
		var log []string
		calls(t, &hooks, &log, "a")
		txscope.Run(t.Context(), hooks.RollbackTo("unseen"))
		calls(t, &hooks, &log, "b")
		require.Empty(t, log)
		txscope.Run(t.Context(), hooks.Finish(end, nil))
		require.Equal(t, want, log, end)
	}
}

func TestReleaseOfUnseenSavepointMakesTheOthersUnsafe(t *testing.T) {
	t.Parallel()
	var hooks txscope.Hooks
	var log []string
	hooks.Savepoint("b")
	calls(t, &hooks, &log, "1")
	hooks.Savepoint("b") // made after the unseen one, and gone with it
	hooks.Release("unseen")
	txscope.Run(t.Context(), hooks.RollbackTo("b")) // so this is the first b
	txscope.Run(t.Context(), hooks.Finish(txscope.Committed, nil))
	require.Equal(t, []string{"rollback 1 true"}, log)
}

func TestHooksAfterTheEnd(t *testing.T) {
	t.Parallel()
	var hooks txscope.Hooks
	txscope.Run(t.Context(), hooks.Finish(txscope.Committed, nil))
	require.ErrorIs(t, hooks.AfterCommit(func(context.Context) {}), outbox.ErrNoTransaction)
	require.ErrorIs(t, hooks.AfterRollback(func(context.Context, error) {}), outbox.ErrNoTransaction)
	hooks.Savepoint("a")
	txscope.Run(t.Context(), hooks.RollbackTo("a"))
	hooks.Release("a")
	require.False(t, hooks.Held())
}

func TestAtCommitRunsWithinFinish(t *testing.T) {
	t.Parallel()
	for end, want := range map[txscope.End]int{txscope.Committed: 1, txscope.RolledBack: 0, txscope.Unknown: 0} {
		var hooks txscope.Hooks
		ran := 0
		require.NoError(t, hooks.AtCommit(nil))
		require.NoError(t, hooks.AtCommit(func() { panic("no") }))
		require.NoError(t, hooks.AtCommit(func() { ran++ }))
		require.Empty(t, hooks.Finish(end, nil))
		require.Equal(t, want, ran, end)
	}
}

func TestPanickingCallbackIsContained(t *testing.T) {
	t.Parallel()
	ran := 0
	var hooks txscope.Hooks
	require.NoError(t, hooks.AfterCommit(func(context.Context) { panic("no") }))
	require.NoError(t, hooks.AfterCommit(func(context.Context) { ran++ }))
	txscope.Run(t.Context(), hooks.Finish(txscope.Committed, nil))
	require.Equal(t, 1, ran)
}

func TestCallbackMayUseTheHooks(t *testing.T) {
	t.Parallel()
	var hooks txscope.Hooks
	hooks.Savepoint("a")
	again := 0
	require.NoError(t, hooks.AfterRollback(func(context.Context, error) {
		require.NoError(t, hooks.AfterCommit(func(context.Context) { again++ }))
	}))
	txscope.Run(t.Context(), hooks.RollbackTo("a"))
	txscope.Run(t.Context(), hooks.Finish(txscope.Committed, nil))
	require.Equal(t, 1, again)
}
