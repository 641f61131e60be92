package sqltx_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/conformance"
)

// randomTransactions is shared among the drivers.
const randomTransactions = 10_000

// The tap, on every driver, by code that knows only database/sql.
func TestTapConformance(t *testing.T) {
	t.Parallel()
	drivers := testdb.Drivers()
	for _, target := range drivers {
		t.Run(target.Name, func(t *testing.T) {
			t.Parallel()
			conformance.RunTap(t, func(t *testing.T) conformance.AdapterHarness {
				h := harness(t, target, followedPool, func(s subject) conformance.AdapterUnderTest { return plainSubject{s} })
				// This driver gives a connection up when RELEASE fails, which plain
				// statements cannot foresee.
				h.FrameworkSavepoints = target.Name == "postgres/pgdriver"
				h.Random = randomTransactions/len(drivers) + 1
				return h
			})
		})
	}
}

// The adapter's own RunInTx.
func TestConformance(t *testing.T) {
	t.Parallel()
	for _, target := range testdb.Main() {
		t.Run(target.Name, func(t *testing.T) {
			t.Parallel()
			conformance.RunAdapter(t, func(t *testing.T) conformance.AdapterHarness {
				return harness(t, target, followedPool, func(s subject) conformance.AdapterUnderTest { return s })
			})
		})
	}
}

// A pool that borrows its connections.
func TestWatchConformance(t *testing.T) {
	t.Parallel()
	for _, target := range testdb.Main() {
		t.Run(target.Name, func(t *testing.T) {
			t.Parallel()
			conformance.RunAdapter(t, func(t *testing.T) conformance.AdapterHarness {
				return harness(t, target, watched, func(s subject) conformance.AdapterUnderTest { return s })
			})
		})
	}
}

func harness(t *testing.T, target testdb.Target, open func(t testing.TB, plain *testdb.DB) *sql.DB, of func(s subject) conformance.AdapterUnderTest) conformance.AdapterHarness {
	t.Helper()
	plain := testdb.Open(t, target)
	db := open(t, plain)
	return conformance.AdapterHarness{
		DB: db, Dialect: conformance.Dialect(target.Kind),
		New: func(writer *outbox.Writer, allowUnmanaged bool) conformance.AdapterUnderTest {
			var opts []sqltx.Option
			if allowUnmanaged {
				opts = append(opts, sqltx.AllowUnmanaged())
			}
			a, err := sqltx.New(db, writer, opts...)
			require.NoError(t, err)
			return of(subject{Adapter: a, db: db, plain: plain.DB})
		},
	}
}

// followedPool opens another pool on the database.
func followedPool(t testing.TB, plain *testdb.DB) *sql.DB {
	t.Helper()
	return plain.Via(t, sqltx.Open).DB
}

// watched makes a followed pool that borrows from another one.
func watched(t testing.TB, plain *testdb.DB) *sql.DB {
	t.Helper()
	db := sqltx.Watch(plain.Reopen(t).DB)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

// subject hands the adapter out as the suite wants it.
type subject struct {
	*sqltx.Adapter
	db, plain *sql.DB
}

func (s subject) RunInTx(ctx context.Context, fn func(ctx context.Context, tx any) error) error {
	return s.Adapter.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error { return fn(ctx, tx) })
}

func (s subject) BeginTx(ctx context.Context) (any, error)   { return s.db.BeginTx(ctx, nil) }
func (s subject) Commit(tx any) error                        { return tx.(*sql.Tx).Commit() }
func (s subject) Rollback(tx any) error                      { return tx.(*sql.Tx).Rollback() }
func (s subject) Unmanaged(ctx context.Context) (any, error) { return s.plain.BeginTx(ctx, nil) }

func (s subject) Exec(ctx context.Context, tx any, query string) error {
	_, err := tx.(*sql.Tx).ExecContext(ctx, query)
	return err
}

func (s subject) Write(ctx context.Context, tx any, env outbox.Envelope) (string, error) {
	return s.Adapter.Write(ctx, tx.(*sql.Tx), env)
}

func (s subject) WriteAll(ctx context.Context, tx any, envs []outbox.Envelope) ([]string, error) {
	return s.Adapter.WriteAll(ctx, tx.(*sql.Tx), envs)
}

func (s subject) AfterCommit(ctx context.Context, tx any, fn func(ctx context.Context)) error {
	return s.Adapter.AfterCommit(ctx, tx.(*sql.Tx), fn)
}

func (s subject) Cancel(ctx context.Context, tx any, which outbox.Waiting) (outbox.TakenBack, error) {
	return s.Adapter.Cancel(ctx, tx.(*sql.Tx), which)
}

func (s subject) Reschedule(ctx context.Context, tx any, which outbox.Waiting, at time.Time) (outbox.TakenBack, error) {
	return s.Adapter.Reschedule(ctx, tx.(*sql.Tx), which, at)
}

func (s subject) Replace(ctx context.Context, tx any, eventID string, with outbox.Replacement) (outbox.TakenBack, error) {
	return s.Adapter.Replace(ctx, tx.(*sql.Tx), eventID, with)
}

var _ conformance.AdapterThatTakesBack = subject{}

func (s subject) AfterRollback(ctx context.Context, tx any, fn func(ctx context.Context, cause error)) error {
	return s.Adapter.AfterRollback(ctx, tx.(*sql.Tx), fn)
}

// plainSubject is code that knows only database/sql, and makes its savepoints by
// hand. It leaves the Transactor to the adapter.
type plainSubject struct{ subject }

type plainKey struct{ db *sql.DB }

// plainTx is a transaction in a context.
type plainTx struct {
	tx         *sql.Tx
	ended      atomic.Bool
	savepoints atomic.Int64
}

func (s plainSubject) RunInTx(ctx context.Context, fn func(ctx context.Context, tx any) error) (err error) {
	if outer, ok := ctx.Value(plainKey{s.db}).(*plainTx); ok && !outer.ended.Load() {
		return s.nest(ctx, outer, fn)
	}
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	plain := &plainTx{tx: tx}
	defer func() {
		plain.ended.Store(true)
		_ = tx.Rollback()
	}()
	txCtx, err := s.WithTx(context.WithValue(ctx, plainKey{s.db}, plain), tx)
	if err != nil {
		return err
	}
	if err := fn(txCtx, tx); err != nil {
		return err
	}
	plain.ended.Store(true)
	return tx.Commit()
}

func (s plainSubject) nest(ctx context.Context, outer *plainTx, fn func(ctx context.Context, tx any) error) error {
	name := fmt.Sprintf("legacy_%d", outer.savepoints.Add(1))
	if _, err := outer.tx.ExecContext(ctx, "SAVEPOINT "+name); err != nil {
		return err
	}
	released := false
	defer func() {
		if !released {
			_, _ = outer.tx.ExecContext(context.WithoutCancel(ctx), "ROLLBACK TO SAVEPOINT "+name)
		}
	}()
	if err := errors.Join(fn(ctx, outer.tx), ctx.Err()); err != nil {
		return err
	}
	_, err := outer.tx.ExecContext(context.WithoutCancel(ctx), "RELEASE SAVEPOINT "+name)
	released = err == nil
	return err
}
