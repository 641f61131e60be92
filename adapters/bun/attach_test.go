package outboxbun_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/mysqldialect"
	"github.com/uptrace/bun/dialect/pgdialect"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	"github.com/uptrace/bun/schema"

	outboxbun "github.com/outboxkit/outbox-go/adapters/bun"
	"github.com/outboxkit/outbox-go/internal/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// fixture is a database with the adapter.
type fixture struct {
	pool   *sql.DB
	plain  *bun.DB // without the hook
	db     *bun.DB
	a      *outboxbun.Adapter
	writer *outbox.Writer
	rec    *adaptertest.Record
}

func newFixture(t testing.TB, pool *sql.DB, kind testdb.Kind, opts ...outboxbun.Option) *fixture {
	t.Helper()
	f := &fixture{pool: pool}
	f.writer, f.rec = adaptertest.Writer(t, pool, string(kind))
	f.plain = newBun(pool, kind)
	f.db = outboxbun.Attach(f.plain)
	var err error
	f.a, err = outboxbun.New(f.db, f.writer, opts...)
	require.NoError(t, err)
	return f
}

func onSQLite(t testing.TB, opts ...outboxbun.Option) *fixture {
	t.Helper()
	return newFixture(t, testdb.Open(t, testdb.Main()[2]).DB, testdb.SQLite, opts...)
}

func TestNewRefusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	f := onSQLite(t)
	other := onSQLite(t)
	for name, tc := range map[string]struct {
		db     *bun.DB
		writer *outbox.Writer
		says   []string
	}{
		"no db":        {nil, f.writer, []string{"outboxbun.New db is nil"}},
		"no writer":    {f.db, nil, []string{"outboxbun.New writer is nil"}},
		"nothing":      {nil, nil, []string{"New db is nil", "New writer is nil"}},
		"without hook": {f.plain, f.writer, []string{"db = outboxbun.Attach(db)"}},
		"another pool": {f.db, other.writer, []string{"belongs to another data source", "outboxbun.New"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := outboxbun.New(tc.db, tc.writer)
			require.Error(t, err)
			for _, says := range tc.says {
				require.ErrorContains(t, err, says)
			}
		})
	}
	require.Nil(t, outboxbun.Attach(nil))
}

func TestAttachTwiceIsOnce(t *testing.T) {
	t.Parallel()
	f := onSQLite(t)
	require.Same(t, f.db, outboxbun.Attach(f.db))
	named := f.db.WithNamedArg("answer", 42)
	require.Same(t, named, outboxbun.Attach(named))
	require.NoError(t, named.RunInTx(t.Context(), nil, func(ctx context.Context, tx bun.Tx) error {
		_, err := f.a.Write(ctx, tx, adaptertest.Event())
		return err
	}))
	require.Equal(t, []string{"commit"}, f.rec.Outcomes())
}

func TestStoreIsTheDialects(t *testing.T) {
	t.Parallel()
	for want, dialect := range map[string]schema.Dialect{"postgres": pgdialect.New(), "mysql": mysqldialect.New(), "sqlite": sqlitedialect.New()} {
		db := bun.NewDB(testdb.Open(t, testdb.Main()[2]).DB, sqlitedialect.New())
		if want != "mysql" { // whose dialect asks the server for its version
			db = bun.NewDB(db.DB, dialect)
		} else {
			db = newBun(testdb.Open(t, testdb.Main()[1]).DB, testdb.MySQL)
		}
		store, err := outboxbun.Store(db, sqlstore.WithTable("events"))
		require.NoError(t, err)
		require.Equal(t, want, store.Dialect())
		require.Equal(t, "events", store.Table())
	}
	_, err := outboxbun.Store(nil)
	require.ErrorContains(t, err, "is nil")
	_, err = outboxbun.Store(newBun(testdb.Open(t, testdb.Main()[2]).DB, testdb.SQLite), sqlstore.WithTable("no table"))
	require.Error(t, err)
	_, err = outboxbun.Store(bun.NewDB(testdb.Open(t, testdb.Main()[2]).DB, otherDialect{sqlitedialect.New()}))
	require.ErrorContains(t, err, "known are pg, mysql and sqlite")
}

// AllowUnmanaged is for transactions that the hook does not know, of the db's
// own pool.
func TestAllowUnmanagedHasItsLimits(t *testing.T) {
	t.Parallel()
	f, other := onSQLite(t, outboxbun.AllowUnmanaged()), onSQLite(t)
	foreign, err := other.plain.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = f.a.Write(t.Context(), foreign, adaptertest.Event())
	require.ErrorIs(t, err, outbox.ErrForeignTransaction)
	require.NoError(t, foreign.Rollback())

	finished, err := f.plain.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	require.NoError(t, finished.Rollback())
	_, err = f.a.WriteAll(t.Context(), finished, nil)
	require.ErrorIs(t, err, outbox.ErrNoTransaction, "before anything else")
	_, err = f.a.Write(t.Context(), finished, outbox.Envelope{})
	require.ErrorIs(t, err, outbox.ErrNoTransaction)
	require.NotErrorIs(t, err, outbox.ErrInvalidEnvelope)
}
