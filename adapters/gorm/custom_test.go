package outboxgorm_test

import (
	"bytes"
	"context"
	"database/sql"
	"log/slog"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	outboxgorm "github.com/outboxkit/outbox-go/adapters/gorm"
	"github.com/outboxkit/outbox-go/internal/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

// customPool is what another plugin puts before the pool.
type customPool struct {
	*sql.DB
	begun int
	bare  bool // its transactions lack StmtContext
}

// BeginTx hides the one of *sql.DB, so that this is no gorm.TxBeginner.
func (p *customPool) BeginTx(ctx context.Context, opts *sql.TxOptions) (gorm.ConnPool, error) {
	p.begun++
	tx, err := p.DB.BeginTx(ctx, opts)
	if err != nil {
		return nil, err
	}
	if p.bare {
		return &bareTx{tx, tx}, nil
	}
	return customTx{tx}, nil
}

func (p *customPool) GetDBConn() (*sql.DB, error) { return p.DB, nil }

type customTx struct{ gorm.Tx }

type bareTx struct {
	gorm.ConnPool
	gorm.TxCommitter
}

func openCustom(t *testing.T, pool *customPool, kind testdb.Kind, cfg *gorm.Config) *gorm.DB {
	t.Helper()
	cfg.Logger = logger.Discard
	db, err := gorm.Open(dialector(kind, pool), cfg)
	require.NoError(t, err)
	require.NoError(t, db.Use(outboxgorm.Plugin()))
	return db
}

func TestPoolOfAnotherPlugin(t *testing.T) {
	t.Parallel()
	for _, prepare := range []bool{false, true} {
		t.Run(map[bool]string{false: "plain", true: "PrepareStmt"}[prepare], func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, testdb.Main(), func(t *testing.T, pool *testdb.DB) { poolOfAnotherPlugin(t, pool, prepare) })
		})
	}
}

func poolOfAnotherPlugin(t *testing.T, pool *testdb.DB, prepare bool) {
	t.Helper()
	custom := &customPool{DB: pool.DB}
	writer, record := adaptertest.Writer(t, pool.DB, string(pool.Kind))
	db := openCustom(t, custom, pool.Kind, &gorm.Config{PrepareStmt: prepare})
	a, err := outboxgorm.New(db, writer)
	require.NoError(t, err)
	write := func(tx *gorm.DB) {
		_, err := a.Write(t.Context(), tx, adaptertest.Event())
		require.NoError(t, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	require.NoError(t, db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		write(tx)
		require.ErrorIs(t, tx.Transaction(func(tx *gorm.DB) error {
			write(tx)
			return errTest
		}), errTest)
		_, err := outboxgorm.SQLTx(tx)
		require.ErrorIs(t, err, outbox.ErrNoTransaction)
		require.ErrorContains(t, err, "customTx")
		return nil
	}))
	tx := db.Begin()
	write(tx)
	require.NoError(t, tx.Rollback().Error)
	require.Equal(t, []string{"rollback", "commit", "rollback"}, record.Outcomes())
	require.Equal(t, 1, adaptertest.Written(t, pool.DB))
	require.Equal(t, 2, custom.begun)

	failing, stop := context.WithCancel(t.Context())
	stop()
	require.ErrorIs(t, db.WithContext(failing).Begin().Error, context.Canceled)
}

// One that was forgotten is rolled back when its context ends, though nothing of
// the program holds on to it.
func TestForgottenTransactionOfAnotherPlugin(t *testing.T) {
	t.Parallel()
	pool := testdb.Open(t, sqliteTarget())
	writer, record := adaptertest.Writer(t, pool.DB, string(pool.Kind))
	db := openCustom(t, &customPool{DB: pool.DB}, pool.Kind, &gorm.Config{})
	a, err := outboxgorm.New(db, writer)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	func() {
		_, err := a.Write(t.Context(), db.WithContext(ctx).Begin(), adaptertest.Event())
		require.NoError(t, err)
	}()
	for range 5 {
		runtime.GC()
	}
	require.Empty(t, record.Outcomes())
	cancel()
	require.Eventually(t, func() bool { return len(record.Outcomes()) > 0 }, 20*time.Second, time.Millisecond)
	require.Equal(t, []string{"rollback"}, record.Outcomes())
	require.Zero(t, adaptertest.Written(t, pool.DB))
}

func TestTransactionOfAnotherPluginThatLacksAMethod(t *testing.T) {
	t.Parallel()
	pool := testdb.Open(t, sqliteTarget())
	db := openCustom(t, &customPool{DB: pool.DB, bare: true}, pool.Kind, &gorm.Config{})
	require.ErrorContains(t, db.Begin().Error, "bareTx, which lacks a method of gorm.Tx")
	require.Zero(t, pool.Stats().InUse)
}

func TestWithLogger(t *testing.T) {
	t.Parallel()
	for name, make := range map[string]func(f *fixture, log *slog.Logger) (*gorm.DB, *outboxgorm.Adapter){
		"New": func(f *fixture, log *slog.Logger) (*gorm.DB, *outboxgorm.Adapter) {
			a, err := outboxgorm.New(f.DB, f.writer, outboxgorm.WithLogger(log))
			require.NoError(t, err)
			return f.DB, a
		},
		"Plugin": func(f *fixture, log *slog.Logger) (*gorm.DB, *outboxgorm.Adapter) {
			db := openPlain(t, f.pool, &gorm.Config{})
			require.NoError(t, db.Use(outboxgorm.Plugin(outboxgorm.WithLogger(log))))
			a, err := outboxgorm.New(db, f.writer)
			require.NoError(t, err)
			return db, a
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var text bytes.Buffer
			db, a := make(onSQLite(t, &gorm.Config{}), slog.New(slog.NewTextHandler(&text, nil)))
			require.NoError(t, db.Transaction(func(tx *gorm.DB) error {
				scope, ok := outbox.ScopeFromContext(outboxgorm.WithTx(t.Context(), tx), mustDB(t, db))
				require.True(t, ok)
				require.NoError(t, scope.AfterCommit(func(context.Context) { panic("a callback's") }))
				_, err := a.Write(t.Context(), tx, adaptertest.Event())
				return err
			}))
			require.Contains(t, text.String(), "a callback's")
		})
	}
}

func mustDB(t *testing.T, db *gorm.DB) *sql.DB {
	t.Helper()
	pool, err := db.DB()
	require.NoError(t, err)
	return pool
}

// A plugin that wraps the pool after ours hides our transactions from Write. It
// has to be installed before.
func TestPluginInstalledLaterHidesTheTransaction(t *testing.T) {
	t.Parallel()
	f := onSQLite(t, &gorm.Config{})
	lenient, err := outboxgorm.New(f.DB, f.writer, outboxgorm.AllowUnmanaged())
	require.NoError(t, err)
	above := f.Session(&gorm.Session{NewDB: true, Context: t.Context()})
	above.Statement.ConnPool = poolAbove{f.ConnPool}
	require.NoError(t, above.Transaction(func(tx *gorm.DB) error {
		err := f.refused(tx)
		require.ErrorIs(t, err, outbox.ErrUnmanagedTransaction)
		require.ErrorContains(t, err, "bareTx")
		_, err = lenient.Write(t.Context(), tx, adaptertest.Event())
		return err
	}))
	f.want(1)
}

type poolAbove struct{ gorm.ConnPool }

func (p poolAbove) GetDBConn() (*sql.DB, error) { return p.ConnPool.(gorm.GetDBConnector).GetDBConn() }

func (p poolAbove) BeginTx(ctx context.Context, opts *sql.TxOptions) (gorm.ConnPool, error) {
	tx, err := p.ConnPool.(gorm.ConnPoolBeginner).BeginTx(ctx, opts)
	if err != nil {
		return nil, err
	}
	return &bareTx{tx, tx.(gorm.TxCommitter)}, nil
}
