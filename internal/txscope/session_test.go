package txscope_test

import (
	"context"
	"database/sql"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/txscope"
	"github.com/outboxkit/outbox-go/outbox"
)

// fakeTx is a transaction whose answers the test gives.
type fakeTx struct {
	exec, commit, rollback error
	onRollback             func()
	done                   []string
}

func (f *fakeTx) ExecContext(_ context.Context, query string, _ ...any) (sql.Result, error) {
	f.done = append(f.done, query)
	return nil, f.exec
}

func (f *fakeTx) Commit() error {
	f.done = append(f.done, "commit")
	return f.commit
}

func (f *fakeTx) Rollback() error {
	f.done = append(f.done, "rollback")
	if f.onRollback != nil {
		f.onRollback()
	}
	return f.rollback
}

// begun is a session with one callback of each kind.
type begun struct {
	*txscope.Session
	tx     *fakeTx
	ended  int
	calls  chan string
	causes chan error
}

func begin(t *testing.T, ctx context.Context, tx *fakeTx, cfg txscope.SessionConfig) *begun { //nolint:revive // the test's own t first.
	t.Helper()
	b := &begun{tx: tx, calls: make(chan string, 4), causes: make(chan error, 4)}
	cfg.Source, cfg.OnEnd = "pool", func() { b.ended++ }
	var err error
	_, b.Session, err = txscope.BeginSession(ctx, cfg, func(context.Context) (*fakeTx, error) { return tx, nil })
	require.NoError(t, err)
	require.NoError(t, b.Scope().AfterCommit(func(context.Context) { b.calls <- "commit" }))
	require.NoError(t, b.Scope().AfterRollback(func(_ context.Context, cause error) {
		b.calls <- "rollback"
		b.causes <- cause
	}))
	return b
}

func TestSessionCommits(t *testing.T) {
	t.Parallel()
	b := begin(t, t.Context(), &fakeTx{}, txscope.SessionConfig{Dialect: txscope.Postgres, Probe: true})
	require.False(t, b.Ending())
	require.NoError(t, b.Commit(b.tx.Commit))
	require.Equal(t, []string{"SELECT 1", "commit"}, b.tx.done)
	require.Equal(t, "commit", <-b.calls)
	require.True(t, b.Ending())
	require.ErrorIs(t, b.Commit(b.tx.Commit), sql.ErrTxDone)
	require.ErrorIs(t, b.Rollback(nil), sql.ErrTxDone)
	b.Lost()
	require.Equal(t, 1, b.ended)
	require.Empty(t, b.calls)
}

func TestSessionDoesNotCommit(t *testing.T) {
	t.Parallel()
	failed, gone := errors.New("current transaction is aborted"), errors.New("deadlock")
	for name, tc := range map[string]struct {
		tx     fakeTx
		before func(b *begun)
		want   error
		done   []string
	}{
		"a failed transaction": {fakeTx{exec: failed}, func(*begun) {}, failed, []string{"SELECT 1", "rollback"}},
		"one that is gone":     {fakeTx{}, func(b *begun) { b.Scope().Doom(gone) }, gone, []string{"rollback"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := begin(t, t.Context(), &tc.tx, txscope.SessionConfig{Dialect: txscope.Postgres, Probe: true})
			tc.before(b)
			require.ErrorIs(t, b.Commit(b.tx.Commit), tc.want)
			require.Equal(t, tc.done, b.tx.done)
			require.Equal(t, "rollback", <-b.calls)
			require.ErrorIs(t, <-b.causes, tc.want)
		})
	}
}

func TestSessionInDoubt(t *testing.T) {
	t.Parallel()
	b := begin(t, t.Context(), &fakeTx{}, txscope.SessionConfig{})
	stray := errors.New("stray rollback")
	b.Scope().Doubt(stray)
	require.NoError(t, b.Commit(b.tx.Commit))
	require.Equal(t, "rollback", <-b.calls)
	cause := <-b.causes
	require.ErrorIs(t, cause, outbox.ErrOutcomeUnknown)
	require.ErrorIs(t, cause, stray)

	b = begin(t, t.Context(), &fakeTx{commit: errors.New("connection reset")}, txscope.SessionConfig{})
	require.ErrorIs(t, b.Commit(b.tx.Commit), outbox.ErrOutcomeUnknown)
	require.ErrorIs(t, <-b.causes, outbox.ErrOutcomeUnknown)
}

func TestSessionEndsWithItsContext(t *testing.T) {
	t.Parallel()
	why := errors.New("why")
	ctx, cancel := context.WithCancelCause(t.Context())
	b := begin(t, ctx, &fakeTx{}, txscope.SessionConfig{})
	cancel(why)
	require.Equal(t, "rollback", <-b.calls)
	require.ErrorIs(t, <-b.causes, why)
	require.ErrorIs(t, b.Commit(b.tx.Commit), context.Canceled)
	runtime.KeepAlive(b.tx)

	_, _, err := txscope.BeginSession(ctx, txscope.SessionConfig{}, func(context.Context) (*fakeTx, error) {
		t.Error("begun although the context had ended")
		return nil, nil
	})
	require.ErrorIs(t, err, context.Canceled)
}

// While ROLLBACK is on its way the transaction may still take statements. None of
// the outbox's gets there: the caller would think that its event is written.
func TestSessionTakesNothingWhileItRollsBack(t *testing.T) {
	t.Parallel()
	give := errors.New("give up")
	ctx, cancel := context.WithCancelCause(t.Context())
	var b *begun
	var late error
	b = begin(t, ctx, &fakeTx{onRollback: func() {
		_, late = b.Scope().ExecContext(t.Context(), "INSERT")
	}}, txscope.SessionConfig{})
	_, err := b.Scope().ExecContext(t.Context(), "INSERT")
	require.NoError(t, err)
	cancel(give)
	require.Equal(t, "rollback", <-b.calls)
	require.ErrorIs(t, late, outbox.ErrNoTransaction)
	require.ErrorIs(t, late, give)
	require.Equal(t, []string{"INSERT", "rollback"}, b.tx.done)
}

func TestSessionWhoseBeginIsInterrupted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	tx := &fakeTx{}
	_, _, err := txscope.BeginSession(ctx, txscope.SessionConfig{}, func(inner context.Context) (*fakeTx, error) {
		cancel()
		<-inner.Done()
		return tx, nil // too late to be of use
	})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, []string{"rollback"}, tx.done)
}

// A statement in a transaction that is just being ended is one outside of it.
func TestSessionTransactionThatIsDone(t *testing.T) {
	t.Parallel()
	b := begin(t, t.Context(), &fakeTx{exec: sql.ErrTxDone, rollback: sql.ErrTxDone}, txscope.SessionConfig{})
	_, err := b.Scope().ExecContext(t.Context(), "INSERT")
	require.ErrorIs(t, err, outbox.ErrNoTransaction)
	require.ErrorIs(t, err, sql.ErrTxDone)
	require.ErrorIs(t, b.Rollback(nil), sql.ErrTxDone)
	require.ErrorIs(t, <-b.causes, outbox.ErrOutcomeUnknown, "somebody else ended it")
}

func TestSessionOfForgottenTransaction(t *testing.T) {
	t.Parallel()
	b := begin(t, context.Background(), &fakeTx{}, txscope.SessionConfig{}) //nolint:usetesting // a context without an end.
	b.tx = nil
	require.Eventually(t, func() bool {
		runtime.GC()
		return len(b.calls) == 1
	}, 20*time.Second, 5*time.Millisecond)
	require.ErrorIs(t, <-b.causes, outbox.ErrOutcomeUnknown)
}

func TestReleaseOfSavepoint(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	refused := errors.New("refused")
	for name, tc := range map[string]struct {
		ctx     context.Context
		before  func(b *begun)
		release error
		want    error
		done    []string
	}{
		"kept":              {t.Context(), func(*begun) {}, nil, nil, []string{"release"}},
		"context has ended": {ended, func(*begun) {}, nil, context.Canceled, []string{"back"}},
		"release fails":     {t.Context(), func(*begun) {}, refused, refused, []string{"release", "back"}},
		"transaction over":  {t.Context(), func(b *begun) { _ = b.Rollback(nil) }, nil, sql.ErrTxDone, nil},
		"transaction gone":  {t.Context(), func(b *begun) { b.Scope().Doom(refused) }, nil, refused, nil},
		"a statement failed": {t.Context(), func(b *begun) {
			b.Scope().ObserveError(stateError("23505"))
		}, nil, stateError("23505"), []string{"back"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := begin(t, t.Context(), &fakeTx{}, txscope.SessionConfig{Dialect: txscope.Postgres, Probe: true})
			tc.before(b)
			var done []string
			err := b.Release(tc.ctx,
				func() error { done = append(done, "release"); return tc.release },
				func() error { done = append(done, "back"); return nil })
			require.ErrorIs(t, err, tc.want)
			require.Equal(t, tc.done, done)
			_ = b.Rollback(nil)
		})
	}
}

// stateError is an error as PostgreSQL's drivers have them.
type stateError string

func (e stateError) Error() string    { return "SQLSTATE " + string(e) }
func (e stateError) SQLState() string { return string(e) }
