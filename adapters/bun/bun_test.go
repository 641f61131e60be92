package outboxbun_test

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"
	"github.com/uptrace/bun/dialect/sqlitedialect"

	outboxbun "github.com/outboxkit/outbox-go/adapters/bun"
	"github.com/outboxkit/outbox-go/internal/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

// otherDialect is one that the outbox has no store for.
type otherDialect struct{ *sqlitedialect.Dialect }

func (otherDialect) Name() dialect.Name { return dialect.MSSQL }

var errNo = errors.New("no")

func TestWriteRefusesWhatIsNoTransaction(t *testing.T) {
	t.Parallel()
	f := onSQLite(t)
	ctx := t.Context()
	conn, err := f.db.Conn(ctx)
	require.NoError(t, err)
	finished, err := f.db.BeginTx(ctx, nil)
	require.NoError(t, err)
	require.NoError(t, finished.Rollback())
	finishedPlain, err := f.plain.BeginTx(ctx, nil)
	require.NoError(t, err)
	require.NoError(t, finishedPlain.Rollback())
	raw, err := f.pool.BeginTx(ctx, nil) // the last one, for SQLite has one writer at a time
	require.NoError(t, err)
	for name, tc := range map[string]struct {
		tx   bun.IDB
		want error
		says string
	}{
		"nil":                       {nil, outbox.ErrNoTransaction, "nil or empty"},
		"nil pointer":               {(*bun.Tx)(nil), outbox.ErrNoTransaction, "nil or empty"},
		"empty":                     {bun.Tx{}, outbox.ErrNoTransaction, "nil or empty"},
		"the db":                    {f.db, outbox.ErrNoTransaction, "*bun.DB is none"},
		"a connection":              {conn, outbox.ErrNoTransaction, "bun.Conn is none"},
		"made by hand":              {bun.Tx{Tx: raw}, outbox.ErrUnmanagedTransaction, "outboxbun.Attach"},
		"of a type of the caller's": {wrapped{finished}, outbox.ErrUnmanagedTransaction, "bun.Tx inside it"},
		"finished":                  {finished, outbox.ErrNoTransaction, "has ended"},
		"finished, without hook":    {finishedPlain, outbox.ErrNoTransaction, "already been committed or rolled back"},
	} {
		_, err := f.a.Write(ctx, tc.tx, adaptertest.Event())
		require.ErrorIs(t, err, tc.want, name)
		require.ErrorContains(t, err, tc.says, name)
		_, err = f.a.WriteAll(ctx, tc.tx, nil)
		require.ErrorIs(t, err, tc.want, "%s, an empty list", name)
	}
	require.NoError(t, raw.Rollback())
	require.NoError(t, conn.Close())
	require.Zero(t, adaptertest.Written(t, f.pool))
}

// wrapped is a transaction inside a type of the caller's.
type wrapped struct{ bun.IDB }

func TestWriteTakesPointersToo(t *testing.T) {
	t.Parallel()
	f := onSQLite(t)
	require.NoError(t, f.db.RunInTx(t.Context(), nil, func(ctx context.Context, tx bun.Tx) error {
		_, err := f.a.Write(ctx, &tx, adaptertest.Event())
		return err
	}))
	require.Equal(t, []string{"commit"}, f.rec.Outcomes())
}

// A transaction of a db without the hook does not become one of the transaction
// whose context it was given.
func TestUnattachedTransactionInTheContextOfAnAttachedOne(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main()[:2], func(t *testing.T, db *testdb.DB) {
		f := newFixture(t, db.DB, db.Kind)
		require.NoError(t, f.db.RunInTx(t.Context(), nil, func(ctx context.Context, outer bun.Tx) error {
			_, err := f.a.Write(ctx, outer, adaptertest.Event())
			require.NoError(t, err)
			plain, err := f.plain.BeginTx(ctx, nil)
			require.NoError(t, err)
			_, err = f.a.Write(ctx, plain, adaptertest.Event())
			require.ErrorIs(t, err, outbox.ErrUnmanagedTransaction)
			require.NoError(t, plain.Rollback())

			// An attached one, on the other hand, is a transaction of its own.
			inner, err := f.db.BeginTx(ctx, nil)
			require.NoError(t, err)
			_, err = f.a.Write(ctx, inner, adaptertest.Event())
			require.NoError(t, err)
			require.NoError(t, inner.Rollback())
			require.Equal(t, []string{"rollback"}, f.rec.Outcomes())
			return nil
		}))
		require.Equal(t, []string{"rollback", "commit"}, f.rec.Outcomes())
		require.Equal(t, 1, adaptertest.Written(t, f.pool))
	})
}

// A nested transaction with a foreign context is not known to the outbox, and
// is never taken for the outer one.
func TestNestedTransactionWithForeignContext(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		f := newFixture(t, db.DB, db.Kind)
		lenient, err := outboxbun.New(f.db, f.writer, outboxbun.AllowUnmanaged())
		require.NoError(t, err)
		require.NoError(t, f.db.RunInTx(t.Context(), nil, func(ctx context.Context, outer bun.Tx) error {
			_, err := f.a.Write(ctx, outer, adaptertest.Event())
			require.NoError(t, err)
			nested, err := outer.BeginTx(context.Background(), nil)
			require.NoError(t, err)
			_, err = f.a.Write(ctx, nested, adaptertest.Event())
			require.ErrorIs(t, err, outbox.ErrUnmanagedTransaction)
			require.ErrorContains(t, err, "the context of its outer transaction")
			_, err = lenient.Write(ctx, nested, adaptertest.Event())
			require.NoError(t, err)
			return nested.Commit()
		}))
		require.Equal(t, []string{"commit"}, f.rec.Outcomes(), "the poller brings the other")
		require.Equal(t, 2, adaptertest.Written(t, f.pool))
	})
}

// What such a transaction takes along when it is rolled back cannot be told, so
// nothing is told to have committed.
func TestStrayRollbackLeavesItToThePoller(t *testing.T) {
	t.Parallel()
	f := onSQLite(t)
	for name, undo := range map[string]func(tx bun.Tx){
		"nested": func(tx bun.Tx) {
			nested, err := tx.BeginTx(context.Background(), nil)
			require.NoError(t, err)
			require.NoError(t, nested.Rollback())
		},
		"by hand": func(tx bun.Tx) {
			_, err := tx.ExecContext(context.Background(), "ROLLBACK TO SAVEPOINT before")
			require.NoError(t, err)
		},
	} {
		require.NoError(t, f.db.RunInTx(t.Context(), nil, func(ctx context.Context, tx bun.Tx) error {
			_, err := tx.ExecContext(context.Background(), "SAVEPOINT before")
			require.NoError(t, err)
			_, err = f.a.Write(ctx, tx, adaptertest.Event())
			require.NoError(t, err)
			undo(tx)
			return nil
		}), name)
		require.ErrorIs(t, f.rec.LastCause(), outbox.ErrOutcomeUnknown, name)
	}
	require.Equal(t, []string{"unknown", "unknown"}, f.rec.Outcomes())
	require.Equal(t, 1, adaptertest.Written(t, f.pool), "the second was undone")

	require.NoError(t, f.db.RunInTx(t.Context(), nil, func(ctx context.Context, tx bun.Tx) error {
		_, err := f.a.Write(ctx, tx, adaptertest.Event())
		return err
	}), "later transactions are none the worse")
	require.Equal(t, "commit", f.rec.Outcomes()[2])
}

// The contexts of two open transactions mixed up: the nested one is in the first
// and has the context of the second.
func TestNestedTransactionWithTheContextOfAnother(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main()[:2], func(t *testing.T, db *testdb.DB) {
		f := newFixture(t, db.DB, db.Kind)
		first, err := f.db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		require.NoError(t, f.db.RunInTx(t.Context(), nil, func(ctx context.Context, second bun.Tx) error {
			_, err := f.a.Write(ctx, second, adaptertest.Event())
			require.NoError(t, err)
			nested, err := first.BeginTx(ctx, nil)
			require.NoError(t, err)
			_, err = f.a.Write(ctx, nested, adaptertest.Event())
			require.ErrorIs(t, err, outbox.ErrUnmanagedTransaction)
			return nil
		}))
		require.NoError(t, first.Rollback())
		require.Equal(t, 1, adaptertest.Written(t, f.pool))
	})
}

func TestAmbientWriteNeedsTheTransaction(t *testing.T) {
	t.Parallel()
	f := newFixture(t, testdb.Open(t, testdb.Main()[0]).DB, testdb.Postgres)
	require.NoError(t, f.db.RunInTx(t.Context(), nil, func(ctx context.Context, tx bun.Tx) error {
		_, known := outboxbun.TxFrom(ctx)
		require.False(t, known)
		_, err := f.writer.Write(ctx, adaptertest.Event())
		require.ErrorIs(t, err, outbox.ErrNoTransaction)
		require.ErrorContains(t, err, "outboxbun.WithTx")

		ctx = outboxbun.WithTx(ctx, tx)
		found, known := outboxbun.TxFrom(ctx)
		require.True(t, known)
		require.Equal(t, tx, found)
		_, err = f.writer.Write(ctx, adaptertest.Event())
		require.NoError(t, err)

		plain, err := f.plain.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, ctx, outboxbun.WithTx(ctx, plain), "which it does not know")
		return plain.Rollback()
	}))
	require.Equal(t, []string{"commit"}, f.rec.Outcomes())
	require.Equal(t, context.Background(), outboxbun.WithTx(context.Background(), bun.Tx{}))
}

// otherHook is a hook of the user's, before or after ours.
type otherHook struct {
	mu      sync.Mutex
	queries []string
	wrap    func(ctx context.Context) context.Context
	after   func(event *bun.QueryEvent)
}

func (h *otherHook) BeforeQuery(ctx context.Context, _ *bun.QueryEvent) context.Context {
	if h.wrap != nil {
		ctx = h.wrap(ctx)
	}
	return ctx
}

func (h *otherHook) AfterQuery(_ context.Context, event *bun.QueryEvent) {
	h.mu.Lock()
	h.queries = append(h.queries, event.Query)
	h.mu.Unlock()
	if h.after != nil {
		h.after(event)
	}
}

type anyKey struct{}

// opaque is a context in which the one below cannot be seen but through Value.
type opaque struct {
	context.Context
	inner func(key any) any
}

func (o opaque) Value(key any) any { return o.inner(key) }

func TestOtherHooks(t *testing.T) {
	t.Parallel()
	wraps := map[string]func(ctx context.Context) context.Context{
		"none":   nil,
		"value":  func(ctx context.Context) context.Context { return context.WithValue(ctx, anyKey{}, 1) },
		"detach": context.WithoutCancel,
		"opaque": func(ctx context.Context) context.Context {
			return opaque{context.Background(), ctx.Value}
		},
	}
	for name, wrap := range wraps {
		for _, first := range []bool{true, false} {
			t.Run(name+map[bool]string{true: "/before ours", false: "/after ours"}[first], func(t *testing.T) {
				t.Parallel()
				pool := testdb.Open(t, testdb.Main()[2]).DB
				writer, rec := adaptertest.Writer(t, pool, "sqlite")
				other := &otherHook{wrap: wrap}
				db := newBun(pool, testdb.SQLite)
				if first {
					db = outboxbun.Attach(db.WithQueryHook(other))
				} else {
					db = outboxbun.Attach(db).WithQueryHook(other)
				}
				a, err := outboxbun.New(db, writer)
				require.NoError(t, err)
				other.queries = nil
				for _, result := range []error{nil, errNo} {
					require.ErrorIs(t, db.RunInTx(t.Context(), nil, func(ctx context.Context, tx bun.Tx) error {
						_, err := a.Write(ctx, tx, adaptertest.Event())
						require.NoError(t, err)
						_, err = a.Write(context.Background(), tx, adaptertest.Event())
						require.NoError(t, err)
						return result
					}), result)
				}
				require.Equal(t, []string{"commit", "commit", "rollback", "rollback"}, rec.Outcomes())
				require.Equal(t, 2, adaptertest.Written(t, pool))
				if name == "none" || name == "value" {
					require.Equal(t, []string{"BEGIN", "COMMIT", "BEGIN", "ROLLBACK"}, other.queries, "the writes do not disturb them")
				}
			})
		}
	}
}

// A hook that panics while COMMIT is being reported keeps nothing waiting.
func TestOtherHookPanicsAfterCommit(t *testing.T) {
	t.Parallel()
	f := onSQLite(t)
	db := f.db.WithQueryHook(&otherHook{after: func(event *bun.QueryEvent) {
		if event.Query == "COMMIT" {
			panic(errNo)
		}
	}})
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = f.a.Write(t.Context(), tx, adaptertest.Event())
	require.NoError(t, err)
	require.PanicsWithValue(t, errNo, func() { _ = tx.Commit() })
	require.ErrorIs(t, tx.Rollback(), sql.ErrTxDone)
	require.Error(t, func() (err error) {
		defer func() { err = errors.Join(err, recover().(error)) }()
		return tx.Commit()
	}())
}

// BEGIN and COMMIT as mere statements on a connection are none of ours.
func TestTransactionsByHand(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		f := newFixture(t, db.DB, db.Kind)
		conn, err := f.db.Conn(t.Context())
		require.NoError(t, err)
		for _, statement := range []string{"BEGIN", "INSERT INTO written (id) VALUES ('a')", "ROLLBACK", "BEGIN", "COMMIT"} {
			_, err := conn.ExecContext(t.Context(), statement)
			require.NoError(t, err)
		}
		require.NoError(t, conn.Close())
		require.NoError(t, f.db.RunInTx(t.Context(), nil, func(ctx context.Context, tx bun.Tx) error {
			_, err := f.a.Write(ctx, tx, adaptertest.Event())
			return err
		}))
		require.Equal(t, []string{"commit"}, f.rec.Outcomes())
	})
}

func TestBuildersStatementsAreFollowed(t *testing.T) {
	t.Parallel()
	f := onSQLite(t)
	require.NoError(t, f.db.RunInTx(t.Context(), nil, func(ctx context.Context, tx bun.Tx) error {
		_, err := tx.NewRaw("SAVEPOINT ?", bun.Ident("here")).Exec(ctx)
		require.NoError(t, err)
		_, err = f.a.Write(ctx, tx, adaptertest.Event())
		require.NoError(t, err)
		_, err = tx.NewRaw("ROLLBACK TO SAVEPOINT ?", bun.Ident("here")).Exec(ctx)
		require.NoError(t, err)
		require.Equal(t, []string{"rollback"}, f.rec.Outcomes())
		_, err = f.a.Write(ctx, tx, adaptertest.Event())
		return err
	}))
	require.Equal(t, []string{"rollback", "commit"}, f.rec.Outcomes())
	require.Equal(t, 1, adaptertest.Written(t, f.pool))
}
