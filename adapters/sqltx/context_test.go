package sqltx_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// watchful notes the context that it begins with and that of the last statement,
// and calls during in BEGIN and in statements.
type watchful struct {
	recording
	began  *atomic.Pointer[context.Context]
	last   *atomic.Pointer[context.Context]
	undone *atomic.Int32
	during func(ctx context.Context) error
}

func newWatchful() watchful {
	return watchful{
		newRecording(), new(atomic.Pointer[context.Context]), new(atomic.Pointer[context.Context]), new(atomic.Int32),
		func(context.Context) error { return nil },
	}
}

func (w watchful) BeginTx(ctx context.Context, _ driver.TxOptions) (driver.Tx, error) {
	w.began.Store(&ctx)
	return w, w.during(ctx)
}

func (w watchful) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	w.last.Store(&ctx)
	return w.recording.ExecContext(ctx, query, args)
}

func (w watchful) Rollback() error { w.undone.Add(1); return nil }

func TestEndOfTheContextInterruptsBegin(t *testing.T) {
	t.Parallel()
	for _, heeds := range []bool{true, false} {
		ctx, cancel := context.WithCancel(t.Context())
		inner := newWatchful()
		inner.during = func(ctx context.Context) error {
			cancel()
			<-ctx.Done()
			if heeds {
				return ctx.Err()
			}
			return nil
		}
		_, err := open(t, fixedConnector{conn: inner}).BeginTx(ctx, nil)
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, heeds, inner.undone.Load() == 0, "a BEGIN that ignored it is rolled back")
	}
}

type valueKey struct{}

func TestDriversContextOutlivesTheCallersAndIsReleased(t *testing.T) {
	t.Parallel()
	inner := newWatchful()
	f := newFixture(t, open(t, fixedConnector{conn: inner}), "sqlite")
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), valueKey{}, "kept"))
	tx, err := f.db.BeginTx(ctx, nil)
	require.NoError(t, err)
	write(t, f.a, tx)
	drivers := *inner.began.Load()
	require.Equal(t, "kept", drivers.Value(valueKey{}))
	require.NoError(t, drivers.Err())

	cancel() // database/sql rolls back
	f.rec.Eventually(t, "rollback")
	require.Equal(t, int32(1), inner.undone.Load())
	require.ErrorIs(t, drivers.Err(), context.Canceled, "nothing waits for it any more")
}

// lateContext has ended, but its children do not know it yet.
type lateContext struct {
	context.Context
	ended atomic.Bool
}

func (c *lateContext) Err() error {
	if c.ended.Load() {
		return context.DeadlineExceeded
	}
	return c.Context.Err()
}

// Between the end of a context and that of its children, database/sql would
// commit.
func TestCommitAfterTheEndOfTheContextRollsBack(t *testing.T) {
	t.Parallel()
	inner := newWatchful()
	f := newFixture(t, open(t, fixedConnector{conn: inner}), "sqlite")
	parent, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	ctx := &lateContext{Context: parent}
	tx, err := f.db.BeginTx(ctx, nil)
	require.NoError(t, err)
	write(t, f.a, tx)
	ctx.ended.Store(true)
	require.ErrorIs(t, tx.Commit(), context.DeadlineExceeded)
	require.Equal(t, int32(1), inner.undone.Load())
	f.rec.Eventually(t, "rollback")
}

// Some drivers start a goroutine to watch a context that can end.
func TestContextWithoutEndStaysOne(t *testing.T) {
	t.Parallel()
	inner := newWatchful()
	db := open(t, fixedConnector{conn: inner})
	tx, err := db.BeginTx(context.WithoutCancel(t.Context()), nil)
	require.NoError(t, err)
	require.Nil(t, (*inner.began.Load()).Done())
	exec(t, tx, "INSERT")
	require.Equal(t, t.Context().Done(), (*inner.last.Load()).Done(), "the statement's own")
	require.NoError(t, tx.Commit())
}

func TestStatementGetsTheEndOfItsTransaction(t *testing.T) {
	t.Parallel()
	inner := newWatchful()
	db := open(t, fixedConnector{conn: inner})
	outer, cancel := context.WithDeadline(context.WithValue(t.Context(), valueKey{}, "outer"), time.Now().Add(time.Hour))
	defer cancel()
	deadline, _ := outer.Deadline()
	own, stop := context.WithCancel(context.WithValue(t.Context(), valueKey{}, "own"))
	defer stop()
	tx, err := db.BeginTx(outer, nil)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	stmt, err := tx.PrepareContext(outer, "UPDATE")
	require.ErrorIs(t, err, driver.ErrSkip, "it cannot prepare")
	require.Nil(t, stmt)
	for _, test := range []struct {
		name  string
		ctx   context.Context
		value string
	}{
		{"the same", outer, "outer"},
		{"none", context.Background(), "outer"},
		{"values alone", context.WithoutCancel(own), "own"},
		{"another", own, "own"},
	} {
		_, err := tx.ExecContext(test.ctx, "INSERT")
		require.NoError(t, err)
		seen := *inner.last.Load()
		got, ok := seen.Deadline()
		require.True(t, ok, test.name)
		require.Equal(t, deadline, got, test.name)
		require.Equal(t, test.value, seen.Value(valueKey{}), test.name)
		require.NotNil(t, seen.Done(), test.name)
	}
}

// slow runs a query until its context ends, or returns rows whose context the
// test looks at.
type slow struct {
	recording
	queried *atomic.Pointer[context.Context]
	block   bool
}

func (s slow) QueryContext(ctx context.Context, _ string, _ []driver.NamedValue) (driver.Rows, error) {
	s.queried.Store(&ctx)
	if s.block {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return noRows{}, nil
}

type noRows struct{}

func (noRows) Columns() []string         { return []string{"n"} }
func (noRows) Close() error              { return nil }
func (noRows) Next([]driver.Value) error { return nil }

func TestEndOfTheTransactionsContextInterruptsAQuery(t *testing.T) {
	t.Parallel()
	inner := slow{newRecording(), new(atomic.Pointer[context.Context]), true}
	db := open(t, fixedConnector{conn: inner})
	ctx, cancel := context.WithCancel(t.Context())
	tx, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	failed := make(chan error, 1)
	own, stop := context.WithCancel(t.Context())
	defer stop()
	go func() {
		rows, err := tx.QueryContext(own, "SELECT") //nolint:sqlclosecheck // it fails.
		if err == nil {
			err = rows.Err()
		}
		failed <- err
	}()
	require.Eventually(t, func() bool { return inner.queried.Load() != nil }, 20*time.Second, time.Millisecond)
	cancel()
	require.ErrorIs(t, <-failed, context.Canceled)
	require.NoError(t, own.Err())
}

func TestContextOfAQueryLivesAsLongAsItsRows(t *testing.T) {
	t.Parallel()
	inner := slow{newRecording(), new(atomic.Pointer[context.Context]), false}
	db := open(t, fixedConnector{conn: inner})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	own, stop := context.WithCancel(t.Context())
	defer stop()
	tx, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	var rows *sql.Rows
	rows, err = tx.QueryContext(own, "SELECT")
	require.NoError(t, err)
	require.True(t, rows.Next())
	seen := *inner.queried.Load()
	require.NoError(t, seen.Err())
	require.NoError(t, rows.Close())
	require.NoError(t, rows.Err())
	require.ErrorIs(t, seen.Err(), context.Canceled, "what was made for it is freed")
}
