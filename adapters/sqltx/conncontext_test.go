package sqltx_test

import (
	"context"
	"database/sql/driver"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
)

// watchful notes the context that it begins with, and calls during in BEGIN.
type watchful struct {
	recording
	began  *atomic.Pointer[context.Context]
	undone *atomic.Int32
	during func(ctx context.Context) error
}

func newWatchful(during func(ctx context.Context) error) watchful {
	return watchful{newRecording(), new(atomic.Pointer[context.Context]), new(atomic.Int32), during}
}

func (w watchful) BeginTx(ctx context.Context, _ driver.TxOptions) (driver.Tx, error) {
	w.began.Store(&ctx)
	if w.during != nil {
		return w, w.during(ctx)
	}
	return w, nil
}

func (w watchful) Rollback() error { w.undone.Add(1); return nil }

func TestEndOfTheContextInterruptsBegin(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	inner := newWatchful(func(ctx context.Context) error {
		cancel()
		<-ctx.Done()
		return ctx.Err()
	})
	_, err := openWrapped(t, fixedConnector{conn: inner}).BeginTx(ctx, nil)
	require.ErrorIs(t, err, context.Canceled)
	require.Zero(t, inner.undone.Load())
}

func TestBeginThatIgnoredTheEndOfTheContextIsRolledBack(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	inner := newWatchful(func(ctx context.Context) error {
		cancel()
		<-ctx.Done()
		return nil
	})
	_, err := openWrapped(t, fixedConnector{conn: inner}).BeginTx(ctx, nil)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, int32(1), inner.undone.Load())
}

type valueKey struct{}

func TestDriversContextOutlivesTheCallersAndIsReleased(t *testing.T) {
	t.Parallel()
	inner := newWatchful(nil)
	db := openWrapped(t, fixedConnector{conn: inner})
	rec := &record{}
	a := sqltx.New(db, newWriter(t, db, "sqlite", rec.hook()))
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), valueKey{}, "kept"))
	tx, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	write(t, a, tx)
	drivers := *inner.began.Load()
	require.Equal(t, "kept", drivers.Value(valueKey{}))
	require.NoError(t, drivers.Err())

	cancel() // database/sql rolls back
	rec.eventually(t, "rollback")
	require.Equal(t, int32(1), inner.undone.Load())
	require.ErrorIs(t, drivers.Err(), context.Canceled, "nothing waits for it any more")
}

// lateContext has ended, but its children have not heard of it yet.
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
	inner := newWatchful(nil)
	db := openWrapped(t, fixedConnector{conn: inner})
	rec := &record{}
	a := sqltx.New(db, newWriter(t, db, "sqlite", rec.hook()))
	parent, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	ctx := &lateContext{Context: parent}
	tx, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	write(t, a, tx)
	ctx.ended.Store(true)
	require.ErrorIs(t, tx.Commit(), context.DeadlineExceeded)
	require.Equal(t, int32(1), inner.undone.Load())
	rec.eventually(t, "rollback")
}

// Some drivers start a goroutine to watch a context that can end.
func TestContextWithoutEndStaysOne(t *testing.T) {
	t.Parallel()
	inner := newWatchful(nil)
	db := openWrapped(t, fixedConnector{conn: inner})
	tx, err := db.BeginTx(context.WithoutCancel(t.Context()), nil)
	require.NoError(t, err)
	require.Nil(t, (*inner.began.Load()).Done())
	require.NoError(t, tx.Commit())
}
