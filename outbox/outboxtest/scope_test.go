package outboxtest_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

func TestScopeEnds(t *testing.T) {
	t.Parallel()
	cause := errors.New("out of stock")
	for name, test := range map[string]struct {
		end        func(tx *outboxtest.Scope) error
		rows       int
		committed  int
		rolledBack int
		cause      error
	}{
		"commit":             {(*outboxtest.Scope).Commit, 1, 1, 0, nil},
		"rollback":           {func(tx *outboxtest.Scope) error { return tx.Rollback(cause) }, 0, 0, 1, cause},
		"unknown and landed": {func(tx *outboxtest.Scope) error { return tx.CommitUnknown(true) }, 1, 0, 1, outbox.ErrOutcomeUnknown},
		"unknown and lost":   {func(tx *outboxtest.Scope) error { return tx.CommitUnknown(false) }, 0, 0, 1, outbox.ErrOutcomeUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, recorder := outboxtest.NewStore(), outboxtest.NewRecorder()
			writer := store.Writer(recorder.Hook())
			tx := outboxtest.NewScope(store.DB())
			require.True(t, tx.Active())
			_, err := writer.Write(tx.Context(t.Context()), said("a"))
			require.NoError(t, err)
			require.Empty(t, store.Rows(), "rows show at the end alone")
			require.Len(t, recorder.Written(), 1)

			require.NoError(t, test.end(tx))
			require.False(t, tx.Active())
			require.Len(t, store.Rows(), test.rows)
			require.Len(t, recorder.Committed(), test.committed)
			require.Len(t, recorder.RolledBack(), test.rolledBack)
			for _, r := range recorder.RolledBack() {
				require.ErrorIs(t, r.Cause, test.cause)
			}

			require.ErrorIs(t, tx.Commit(), sql.ErrTxDone)
			require.ErrorIs(t, tx.Rollback(nil), sql.ErrTxDone)
			require.ErrorIs(t, tx.Savepoint("s"), sql.ErrTxDone)
			require.ErrorIs(t, tx.RollbackTo("s"), sql.ErrTxDone)
			require.Len(t, recorder.RolledBack(), test.rolledBack, "a second end fires nothing")
			_, err = writer.Write(tx.Context(t.Context()), said("b"))
			require.ErrorIs(t, err, outbox.ErrNoTransaction)
		})
	}
}

func TestScopeCallbacksSeeAllRowsOfTheTransaction(t *testing.T) {
	t.Parallel()
	store := outboxtest.NewStore()
	var seen []int
	hook := outbox.WriterHook{AfterCommit: func(context.Context, []outbox.Envelope) { seen = append(seen, len(store.Rows())) }}
	writer := store.Writer(hook)
	tx := outboxtest.NewScope(store.DB())
	for _, id := range []string{"a", "b"} {
		_, err := writer.Write(tx.Context(t.Context()), said(id))
		require.NoError(t, err)
	}
	require.NoError(t, tx.Commit())
	require.Equal(t, []int{2, 2}, seen)
}

func TestScopeSavepoints(t *testing.T) {
	t.Parallel()
	store, recorder := outboxtest.NewStore(), outboxtest.NewRecorder()
	writer := store.Writer(recorder.Hook())
	tx := outboxtest.NewScope(store.DB())
	ctx := tx.Context(t.Context())
	emit := func(id string) {
		_, err := writer.Write(ctx, said(id))
		require.NoError(t, err)
	}
	emit("a")
	require.NoError(t, tx.Savepoint("outer"))
	emit("b")
	require.NoError(t, tx.Savepoint("inner"))
	emit("c")
	require.NoError(t, tx.Release("inner"))
	require.ErrorContains(t, tx.RollbackTo("inner"), `no savepoint "inner"`)
	require.NoError(t, tx.RollbackTo("outer"))
	require.Len(t, recorder.RolledBack(), 2, "their callbacks run at once")
	emit("b") // its id is free again
	require.NoError(t, tx.RollbackTo("outer"), "the savepoint is still there")
	require.NoError(t, tx.Release("outer"))
	emit("d")
	require.NoError(t, tx.Commit())
	for _, from := range []outboxtest.Emitter{tx, store, recorder} {
		outboxtest.AssertEmitted(t, from, outboxtest.Event{Payload: "a"}, outboxtest.Event{Payload: "d"})
	}
}

func TestTransactor(t *testing.T) {
	t.Parallel()
	store, recorder := outboxtest.NewStore(), outboxtest.NewRecorder()
	writer := store.Writer(recorder.Hook())
	begin := outboxtest.NewTransactor(store.DB())
	failure := errors.New("inner failure")

	err := outbox.InTx(t.Context(), begin, func(ctx context.Context) error {
		if _, err := writer.Write(ctx, said("a")); err != nil {
			return err
		}
		err := outbox.InTx(ctx, begin, func(ctx context.Context) error {
			_, err := writer.Write(ctx, said("b"))
			require.NoError(t, err)
			return failure
		})
		require.ErrorIs(t, err, failure)
		return outbox.InTx(ctx, begin, func(ctx context.Context) error {
			_, err := writer.Write(ctx, said("c"))
			return err
		})
	})
	require.NoError(t, err)
	outboxtest.AssertEmitted(t, recorder, outboxtest.Event{Payload: "a"}, outboxtest.Event{Payload: "c"})
	require.Len(t, recorder.RolledBack(), 1)
}

func TestTransactorRollsBackWhenItsContextEnds(t *testing.T) {
	t.Parallel()
	store, recorder := outboxtest.NewStore(), outboxtest.NewRecorder()
	begin := outboxtest.NewTransactor(store.DB())
	ended, cancel := context.WithCancel(t.Context())
	ctx, tx, err := begin.Begin(ended, nil)
	require.NoError(t, err)
	_, err = store.Writer(recorder.Hook()).Write(ctx, said("a"))
	require.NoError(t, err)
	cancel()
	require.Eventually(t, func() bool { return len(recorder.RolledBack()) == 1 }, outboxtest.WaitLimit, 1)
	require.ErrorIs(t, recorder.RolledBack()[0].Cause, context.Canceled)
	require.ErrorIs(t, tx.Commit(), sql.ErrTxDone)
	_, _, err = begin.Begin(ended, nil)
	require.ErrorIs(t, err, context.Canceled)
}

func TestTransactorWhoseCommitFails(t *testing.T) {
	t.Parallel()
	for name, failure := range map[string]error{
		"rolled back": errors.New("deferred constraint"),
		"unknown":     outbox.ErrOutcomeUnknown,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, recorder := outboxtest.NewStore(), outboxtest.NewRecorder()
			writer := store.Writer(recorder.Hook())
			begin := outboxtest.NewTransactor(store.DB())
			begin.CommitError = failure
			err := outbox.InTx(t.Context(), begin, func(ctx context.Context) error {
				_, err := writer.Write(ctx, said("a"))
				return err
			})
			require.ErrorIs(t, err, failure)
			outboxtest.AssertNothingEmitted(t, recorder)
			outboxtest.AssertNothingEmitted(t, store)
			require.ErrorIs(t, recorder.RolledBack()[0].Cause, failure)
		})
	}
}
