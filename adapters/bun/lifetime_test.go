package outboxbun_test

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	outboxbun "github.com/outboxkit/outbox-go/adapters/bun"
	"github.com/outboxkit/outbox-go/internal/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

var errGiveUp = errors.New("give up")

func TestContextOfTheTransaction(t *testing.T) {
	t.Parallel()
	type key struct{}
	f := onSQLite(t)
	parent, cancel := context.WithTimeoutCause(context.WithValue(t.Context(), key{}, "value"), time.Hour, errGiveUp)
	defer cancel()
	var during, derived context.Context
	var done <-chan struct{}
	require.NoError(t, f.db.RunInTx(parent, nil, func(ctx context.Context, tx bun.Tx) error {
		during = ctx //nolint:fatcontext // what the test is about.
		done = ctx.Done()
		var stop context.CancelFunc
		derived, stop = context.WithCancel(ctx)
		t.Cleanup(stop)
		require.Equal(t, "value", ctx.Value(key{}))
		want, _ := parent.Deadline()
		deadline, ok := ctx.Deadline()
		require.True(t, ok)
		require.Equal(t, want, deadline)
		_, err := f.a.Write(ctx, tx, adaptertest.Event())
		return err
	}))
	require.NoError(t, during.Err(), "it outlives the transaction, as without the outbox")
	require.NoError(t, derived.Err())
	runtime.GC()
	cancel()
	for _, c := range []<-chan struct{}{done, during.Done(), derived.Done()} {
		<-c
	}
	require.ErrorIs(t, during.Err(), context.Canceled)
	require.ErrorIs(t, derived.Err(), context.Canceled)
	require.Equal(t, []string{"commit"}, f.rec.Outcomes())
}

func TestContextEndsWhileOpen(t *testing.T) {
	t.Parallel()
	f := onSQLite(t)
	parent, cancel := context.WithCancelCause(t.Context())
	require.Error(t, f.db.RunInTx(parent, nil, func(ctx context.Context, tx bun.Tx) error {
		_, err := f.a.Write(ctx, tx, adaptertest.Event())
		require.NoError(t, err)
		called := make(chan struct{})
		stop := context.AfterFunc(ctx, func() { close(called) })
		unused := context.AfterFunc(ctx, func() { t.Error("it was stopped") })
		require.True(t, unused())
		cancel(errGiveUp)
		<-called
		require.False(t, stop())
		require.ErrorIs(t, ctx.Err(), context.Canceled)
		require.ErrorIs(t, context.Cause(ctx), errGiveUp)
		late := make(chan struct{})
		context.AfterFunc(ctx, func() { close(late) })
		<-late
		_, err = f.a.Write(t.Context(), tx, adaptertest.Event())
		require.ErrorIs(t, err, outbox.ErrNoTransaction)
		return nil
	}))
	require.Eventually(t, func() bool { return len(f.rec.Outcomes()) > 0 }, 20*time.Second, time.Millisecond)
	require.Equal(t, []string{"rollback"}, f.rec.Outcomes())
	require.ErrorIs(t, f.rec.LastCause(), errGiveUp)
	require.Zero(t, adaptertest.Written(t, f.pool))
}

// cancelAt returns the db with a hook that ends a context when a statement has
// run, before our hook hears of it.
func cancelAt(db *bun.DB, query string, cancel func()) *bun.DB {
	return db.WithQueryHook(&otherHook{after: func(event *bun.QueryEvent) {
		if event.Query == query {
			cancel()
		}
	}})
}

func TestContextEndsDuringCommit(t *testing.T) {
	t.Parallel()
	f := onSQLite(t)
	parent, cancel := context.WithCancel(t.Context())
	var during context.Context
	require.NoError(t, cancelAt(f.db, "COMMIT", cancel).RunInTx(parent, nil, func(ctx context.Context, tx bun.Tx) error {
		during = ctx //nolint:fatcontext // what the test is about.
		_, err := f.a.Write(ctx, tx, adaptertest.Event())
		return err
	}))
	<-during.Done()
	require.ErrorIs(t, during.Err(), context.Canceled)
	require.Equal(t, []string{"commit"}, f.rec.Outcomes())
}

func TestContextEndsDuringBegin(t *testing.T) {
	t.Parallel()
	f := onSQLite(t)
	parent, cancel := context.WithCancel(t.Context())
	tx, err := cancelAt(f.db, "BEGIN", func() {
		fired := make(chan struct{})
		context.AfterFunc(parent, func() { close(fired) })
		cancel()
		<-fired
	}).BeginTx(parent, nil)
	require.NoError(t, err)
	scope, ok := outbox.ScopeFromContext(outboxbun.WithTx(t.Context(), tx), f.pool)
	require.True(t, ok)
	require.Eventually(t, func() bool { return !scope.Active() }, 20*time.Second, time.Millisecond)
	_, err = f.a.Write(t.Context(), tx, adaptertest.Event())
	require.ErrorIs(t, err, outbox.ErrNoTransaction)
	require.Error(t, tx.Commit())
}

// The statement is not what ends the transaction, the context is.
func TestContextEndsDuringCommitStatement(t *testing.T) {
	t.Parallel()
	f := onSQLite(t)
	parent, cancel := context.WithCancel(t.Context())
	tx, err := cancelAt(f.db, "COMMIT", cancel).BeginTx(parent, nil)
	require.NoError(t, err)
	_, err = f.a.Write(t.Context(), tx, adaptertest.Event())
	require.NoError(t, err)
	_, err = tx.Exec("COMMIT")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return len(f.rec.Outcomes()) == 1 }, 20*time.Second, time.Millisecond)
	require.Equal(t, []string{"unknown"}, f.rec.Outcomes())
}

// A BEGIN that fails has nothing to do with the transaction whose context it was
// given.
func TestFailedBeginWithinATransaction(t *testing.T) {
	t.Parallel()
	f := onSQLite(t)
	require.NoError(t, f.db.RunInTx(t.Context(), nil, func(ctx context.Context, tx bun.Tx) error {
		ended, cancel := context.WithCancel(ctx)
		cancel()
		_, err := f.db.BeginTx(ended, nil)
		require.ErrorIs(t, err, context.Canceled)
		_, err = f.a.Write(ctx, tx, adaptertest.Event())
		return err
	}))
	require.Equal(t, []string{"commit"}, f.rec.Outcomes())
}

// What runs on another db is none of the transaction's, though it has its
// context.
func TestStatementsOfAnotherDB(t *testing.T) {
	t.Parallel()
	f := newFixture(t, testdb.Open(t, testdb.Main()[0]).DB, testdb.Postgres)
	other := onSQLite(t)
	conn, err := other.db.Conn(t.Context())
	require.NoError(t, err)
	require.NoError(t, f.db.RunInTx(t.Context(), nil, func(ctx context.Context, tx bun.Tx) error {
		for _, statement := range []string{"BEGIN", "SAVEPOINT a", "ROLLBACK TO SAVEPOINT a", "COMMIT", "BEGIN", "ROLLBACK"} {
			_, err := conn.ExecContext(ctx, statement)
			require.NoError(t, err)
		}
		_, err = f.a.Write(ctx, tx, adaptertest.Event())
		return err
	}))
	require.NoError(t, conn.Close())
	require.Equal(t, []string{"commit"}, f.rec.Outcomes())
}

// registering is a context that counts what waits for its end.
type registering struct {
	context.Context
	done    chan struct{}
	waiting atomic.Int32
}

func (r *registering) Done() <-chan struct{} { return r.done }

func (r *registering) AfterFunc(func()) (stop func() bool) {
	r.waiting.Add(1)
	var once atomic.Bool
	return func() bool {
		if once.CompareAndSwap(false, true) {
			r.waiting.Add(-1)
			return true
		}
		return false
	}
}

// A worker's context lives as long as the process: transactions that are over
// must not pile up in it.
func TestNothingPilesUpInALongContext(t *testing.T) {
	t.Parallel()
	f := onSQLite(t)
	parent := &registering{Context: context.Background(), done: make(chan struct{})}
	for range 20 {
		require.NoError(t, f.db.RunInTx(parent, nil, func(ctx context.Context, tx bun.Tx) error {
			_, err := f.a.Write(ctx, tx, adaptertest.Event())
			return err
		}))
	}
	require.Eventually(t, func() bool {
		runtime.GC()
		return parent.waiting.Load() == 0
	}, 20*time.Second, 5*time.Millisecond)
}
