package outboxbun_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"
	"github.com/uptrace/bun/dialect/sqlitedialect"

	outboxbun "github.com/outboxkit/outbox-go/adapters/bun"
	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

// fixture is a db on a followed pool with the table, an adapter, and a record of
// what the writer's hooks got.
type fixture struct {
	pool   *testdb.DB
	db     *bun.DB
	writer *outbox.Writer
	rec    *adaptertest.Record
	a      *outboxbun.Adapter
}

func newFixture(t *testing.T, target testdb.Target) fixture {
	t.Helper()
	f := fixture{pool: testdb.Open(t, target)}
	f.db = newBun(f.pool.DB, target.Kind)
	f.writer, f.rec = adaptertest.Writer(t, f.pool.DB, string(target.Kind))
	var err error
	f.a, err = outboxbun.New(f.db, f.writer)
	require.NoError(t, err)
	return f
}

func onSQLite(t *testing.T) fixture {
	t.Helper()
	return newFixture(t, adaptertest.Main()[2])
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	f, other := onSQLite(t), onSQLite(t)
	_, err := outboxbun.New(nil, nil)
	require.EqualError(t, err, "outbox: outboxbun.New db is nil\noutbox: outboxbun.New writer is nil")
	_, err = outboxbun.New(f.db, other.writer)
	require.ErrorContains(t, err, "another pool")
	plain := f.pool.Via(t, nil)
	writer, _ := adaptertest.WriterWithoutTable(t, plain.DB, "sqlite")
	_, err = outboxbun.New(newBun(plain.DB, plain.Kind), writer)
	require.ErrorContains(t, err, "sqltx.Open")
	require.ErrorContains(t, err, "sqltx.Watch(pool)")

	watched := sqltx.Watch(plain.DB)
	t.Cleanup(func() { require.NoError(t, watched.Close()) })
	writer, _ = adaptertest.WriterWithoutTable(t, watched, "sqlite")
	_, err = outboxbun.New(newBun(watched, plain.Kind), writer)
	require.NoError(t, err)
}

// otherDialect is one that the outbox has no store for.
type otherDialect struct{ *sqlitedialect.Dialect }

func (otherDialect) Name() dialect.Name { return dialect.MSSQL }

func TestStore(t *testing.T) {
	t.Parallel()
	pool := adaptertest.Nothing(t)
	for kind, want := range map[testdb.Kind]string{testdb.Postgres: "postgres", testdb.MySQL: "mysql", testdb.SQLite: "sqlite"} {
		store, err := outboxbun.Store(newBun(pool, kind))
		require.NoError(t, err)
		require.Equal(t, want, store.Dialect())
	}
	_, err := outboxbun.Store(nil)
	require.ErrorContains(t, err, "db is nil")
	_, err = outboxbun.Store(bun.NewDB(pool, otherDialect{sqlitedialect.New()}))
	require.ErrorContains(t, err, "known are pg, mysql and sqlite")
}

// wrapped is a transaction inside a type of the caller's.
type wrapped struct{ bun.IDB }

func TestWriteRefusesWhatIsNoTransaction(t *testing.T) {
	t.Parallel()
	f := onSQLite(t)
	ctx := t.Context()
	conn, err := f.db.Conn(ctx)
	require.NoError(t, err)
	finished, err := f.db.BeginTx(ctx, nil)
	require.NoError(t, err)
	require.NoError(t, finished.Rollback())
	raw, err := f.pool.Via(t, nil).BeginTx(ctx, nil)
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
		"of a pool nobody follows":  {bun.Tx{Tx: raw}, outbox.ErrUnmanagedTransaction, "sqltx.Watch"},
		"of a type of the caller's": {wrapped{finished}, outbox.ErrUnmanagedTransaction, "bun.Tx inside it"},
		"finished":                  {finished, outbox.ErrNoTransaction, "already been committed or rolled back"},
	} {
		_, err := f.a.Write(ctx, tc.tx, adaptertest.Event())
		require.ErrorIs(t, err, tc.want, name)
		require.ErrorContains(t, err, tc.says, name)
		_, err = f.a.WriteAll(ctx, tc.tx, nil)
		require.ErrorIs(t, err, tc.want, "%s, an empty list", name)
	}
	require.NoError(t, raw.Rollback())
	require.NoError(t, conn.Close())
	require.Zero(t, adaptertest.Written(t, f.pool.DB))
}

func TestWriteTakesPointersAndWhatWasMadeByHand(t *testing.T) {
	t.Parallel()
	f := onSQLite(t)
	require.NoError(t, f.db.RunInTx(t.Context(), nil, func(ctx context.Context, tx bun.Tx) error {
		_, err := f.a.Write(ctx, &tx, adaptertest.Event())
		require.NoError(t, err)
		_, err = f.a.Write(ctx, bun.Tx{Tx: tx.Tx}, adaptertest.Event())
		return err
	}))
	f.rec.EventuallyInAnyOrder(t, "commit", "commit")
}

func TestATransactionThatHasEndedSaysSoAsInDatabaseSQL(t *testing.T) {
	t.Parallel()
	f := onSQLite(t)
	tx, err := f.db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = f.a.Write(t.Context(), tx, adaptertest.Event())
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	require.ErrorIs(t, tx.Rollback(), sql.ErrTxDone)
	require.ErrorIs(t, tx.Commit(), sql.ErrTxDone)
	_, begun, err := f.a.Begin(t.Context(), nil)
	require.NoError(t, err)
	require.NoError(t, begun.Commit())
	require.ErrorIs(t, begun.Rollback(), sql.ErrTxDone)
	require.Equal(t, 1, adaptertest.Written(t, f.pool.DB))
}

// bun rolls a nested transaction back by its savepoint, which its commit has released. The
// pages warn of it.
func TestRollbackAfterTheCommitOfANestedTransactionEndsTheOuterOneOnPostgres(t *testing.T) {
	t.Parallel()
	f := newFixture(t, adaptertest.Main()[0])
	tx, err := f.db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = f.a.Write(t.Context(), tx, adaptertest.Event())
	require.NoError(t, err)
	nested, err := tx.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	require.NoError(t, nested.Commit())
	require.ErrorContains(t, nested.Rollback(), "savepoint")
	require.Error(t, tx.Commit())
	f.rec.EventuallyInAnyOrder(t, "rollback")
	require.Zero(t, adaptertest.Written(t, f.pool.DB))
}

// The connection knows to which transaction a nested one belongs, whatever
// context it was given.
func TestNestedTransactionWithTheContextOfAnother(t *testing.T) {
	t.Parallel()
	testdb.Each(t, adaptertest.Main()[:2], func(t *testing.T, db *testdb.DB) {
		f := newFixture(t, targetOf(db))
		first, err := f.db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		require.NoError(t, f.db.RunInTx(t.Context(), nil, func(ctx context.Context, second bun.Tx) error {
			_, err := f.a.Write(ctx, second, adaptertest.Event())
			require.NoError(t, err)
			for _, ctx := range []context.Context{ctx, context.Background()} {
				nested, err := first.BeginTx(ctx, nil)
				require.NoError(t, err)
				_, err = f.a.Write(ctx, nested, adaptertest.Event())
				require.NoError(t, err)
				require.NoError(t, nested.Rollback())
			}
			f.rec.EventuallyInAnyOrder(t, "rollback", "rollback")
			return nil
		}))
		f.rec.EventuallyInAnyOrder(t, "rollback", "rollback", "commit")
		require.NoError(t, first.Rollback())
		require.Equal(t, 1, adaptertest.Written(t, f.pool.DB))
	})
}

func targetOf(db *testdb.DB) testdb.Target {
	for _, target := range adaptertest.Main() {
		if target.Name == db.Name {
			return target
		}
	}
	panic("no target " + db.Name)
}

func TestTxFromAndWithTx(t *testing.T) {
	t.Parallel()
	f, other := onSQLite(t), onSQLite(t)
	var kept context.Context
	require.NoError(t, f.db.RunInTx(t.Context(), nil, func(ctx context.Context, tx bun.Tx) error {
		_, known := f.a.TxFrom(ctx)
		require.False(t, known)
		_, err := f.writer.Write(ctx, adaptertest.Event())
		require.ErrorIs(t, err, outbox.ErrNoTransaction)

		ctx, err = f.a.WithTx(ctx, tx)
		require.NoError(t, err)
		kept = ctx //nolint:fatcontext // what the test is about.
		found, known := f.a.TxFrom(ctx)
		require.True(t, known)
		require.Equal(t, tx, found)
		_, known = other.a.TxFrom(ctx)
		require.False(t, known)
		_, err = other.a.WithTx(ctx, tx)
		require.ErrorIs(t, err, outbox.ErrForeignTransaction)
		_, err = f.writer.Write(ctx, adaptertest.Event())
		return err
	}))
	f.rec.EventuallyInAnyOrder(t, "commit")
	_, known := f.a.TxFrom(kept)
	require.False(t, known, "it is over")
	_, err := f.a.WithTx(t.Context(), bun.Tx{})
	require.ErrorIs(t, err, outbox.ErrNoTransaction)
}

// queryLog is a hook of the user's.
type queryLog struct{ queries []string }

func (h *queryLog) BeforeQuery(ctx context.Context, _ *bun.QueryEvent) context.Context { return ctx }

func (h *queryLog) AfterQuery(_ context.Context, event *bun.QueryEvent) {
	h.queries = append(h.queries, event.Query)
}

func TestUsersHooksSeeTheTransactionAndNoEvent(t *testing.T) {
	t.Parallel()
	f := onSQLite(t)
	log := &queryLog{}
	f.db.AddQueryHook(log) //nolint:staticcheck // the oldest bun has no WithQueryHook
	a, err := outboxbun.New(f.db, f.writer)
	require.NoError(t, err)
	require.NoError(t, outbox.InTx(t.Context(), a, func(ctx context.Context) error {
		_, err := f.writer.Write(ctx, adaptertest.Event())
		return err
	}))
	require.Equal(t, []string{"BEGIN", "COMMIT"}, log.queries)
	require.Equal(t, []string{"commit"}, f.rec.Outcomes(), "before InTx returns")
}

func TestBuildersStatementsAreFollowed(t *testing.T) {
	t.Parallel()
	f := onSQLite(t)
	require.NoError(t, f.db.RunInTx(t.Context(), &sql.TxOptions{}, func(ctx context.Context, tx bun.Tx) error {
		_, err := tx.NewRaw("SAVEPOINT ?", bun.Ident("here")).Exec(ctx)
		require.NoError(t, err)
		_, err = f.a.Write(ctx, tx, adaptertest.Event())
		require.NoError(t, err)
		_, err = tx.NewRaw("ROLLBACK TO SAVEPOINT ?", bun.Ident("here")).Exec(ctx)
		require.NoError(t, err)
		_, err = f.a.Write(ctx, tx, adaptertest.Event())
		return err
	}))
	f.rec.EventuallyInAnyOrder(t, "rollback", "commit")
	require.Equal(t, 1, adaptertest.Written(t, f.pool.DB))
}
