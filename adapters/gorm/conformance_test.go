package outboxgorm_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/driver/mysql"
	"gorm.io/driver/postgres"
	"gorm.io/driver/sqlite"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	outboxgorm "github.com/outboxkit/outbox-go/adapters/gorm"
	"github.com/outboxkit/outbox-go/internal/sqlerr"
	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/conformance"
)

// TestConformance runs the suite on transactions that the user begins with GORM,
// and on those that the adapter begins.
func TestConformance(t *testing.T) {
	t.Parallel()
	for _, target := range adaptertest.Main() {
		for _, style := range []struct {
			name        string
			prepareStmt bool
			framework   bool
		}{
			{"framework", false, true},
			{"framework/PrepareStmt", true, true},
			{"transactor", false, false},
			{"transactor/PrepareStmt", true, false},
		} {
			t.Run(target.Name+"/"+style.name, func(t *testing.T) {
				t.Parallel()
				conformance.RunAdapter(t, func(t *testing.T) conformance.AdapterHarness {
					db := testdb.Open(t, target)
					return conformance.AdapterHarness{
						DB: db.DB, Dialect: conformance.Dialect(target.Kind), FrameworkSavepoints: style.framework,
						New: func(writer *outbox.Writer, allowUnmanaged bool) conformance.AdapterUnderTest {
							s := newSubject(t, db, writer, allowUnmanaged, &gorm.Config{PrepareStmt: style.prepareStmt})
							if style.framework {
								return frameworkSubject{s}
							}
							return transactorSubject{s}
						},
					}
				})
			})
		}
	}
}

// dialector is GORM's for the pool.
func dialector(kind testdb.Kind, db gorm.ConnPool) gorm.Dialector {
	switch kind {
	case testdb.Postgres:
		return postgres.New(postgres.Config{Conn: db})
	case testdb.MySQL:
		return mysql.New(mysql.Config{Conn: db, SkipInitializeWithVersion: true})
	default:
		return sqlite.New(sqlite.Config{Conn: db})
	}
}

// open opens GORM on the pool.
func open(t testing.TB, db *testdb.DB, cfg *gorm.Config) *gorm.DB {
	t.Helper()
	cfg.Logger = logger.Discard
	handle, err := gorm.Open(dialector(db.Kind, db.DB), cfg)
	require.NoError(t, err)
	return handle
}

// openPlain opens GORM on another pool, which is not followed.
func openPlain(t testing.TB, db *testdb.DB, cfg *gorm.Config) *gorm.DB {
	t.Helper()
	return open(t, db.Via(t, nil), cfg)
}

// subject is what both styles share.
type subject struct {
	*outboxgorm.Adapter
	handle, plain *gorm.DB
}

func newSubject(t *testing.T, db *testdb.DB, writer *outbox.Writer, allowUnmanaged bool, cfg *gorm.Config) subject {
	t.Helper()
	var opts []outboxgorm.Option
	if allowUnmanaged {
		opts = append(opts, outboxgorm.AllowUnmanaged())
	}
	handle := open(t, db, cfg)
	a, err := outboxgorm.New(handle, writer, opts...)
	require.NoError(t, err)
	return subject{Adapter: a, handle: handle, plain: openPlain(t, db, &gorm.Config{})}
}

func (s subject) BeginTx(ctx context.Context) (any, error) {
	tx := s.handle.WithContext(ctx).Begin()
	return tx, tx.Error
}

func (s subject) Commit(tx any) error   { return tx.(*gorm.DB).Commit().Error }
func (s subject) Rollback(tx any) error { return tx.(*gorm.DB).Rollback().Error }

func (s subject) Unmanaged(ctx context.Context) (any, error) {
	tx := s.plain.WithContext(ctx).Begin()
	return tx, tx.Error
}

// Exec runs a statement that MySQL does not prepare below GORM's prepared statements.
func (s subject) Exec(ctx context.Context, tx any, query string) error {
	db := tx.(*gorm.DB)
	err := db.WithContext(ctx).Exec(query).Error
	if prepared, is := db.Statement.ConnPool.(*gorm.PreparedStmtTX); is && sqlerr.HasNumber(err, 1295) {
		_, err = prepared.Tx.ExecContext(ctx, query)
	}
	return err
}

func (s subject) Write(ctx context.Context, tx any, env outbox.Envelope) (string, error) {
	return s.Adapter.Write(ctx, tx.(*gorm.DB), env)
}

func (s subject) WriteAll(ctx context.Context, tx any, envs []outbox.Envelope) ([]string, error) {
	return s.Adapter.WriteAll(ctx, tx.(*gorm.DB), envs)
}

func (s subject) AfterCommit(ctx context.Context, tx any, fn func(ctx context.Context)) error {
	return s.Adapter.AfterCommit(ctx, tx.(*gorm.DB), fn)
}

func (s subject) Cancel(ctx context.Context, tx any, which outbox.Waiting) (outbox.TakenBack, error) {
	return s.Adapter.Cancel(ctx, tx.(*gorm.DB), which)
}

func (s subject) Reschedule(ctx context.Context, tx any, which outbox.Waiting, at time.Time) (outbox.TakenBack, error) {
	return s.Adapter.Reschedule(ctx, tx.(*gorm.DB), which, at)
}

func (s subject) Replace(ctx context.Context, tx any, eventID string, with outbox.Replacement) (outbox.TakenBack, error) {
	return s.Adapter.Replace(ctx, tx.(*gorm.DB), eventID, with)
}

var _ conformance.AdapterThatTakesBack = subject{}

func (s subject) AfterRollback(ctx context.Context, tx any, fn func(ctx context.Context, cause error)) error {
	return s.Adapter.AfterRollback(ctx, tx.(*gorm.DB), fn)
}

// frameworkSubject uses GORM's own Transaction.
type frameworkSubject struct{ subject }

func (s frameworkSubject) RunInTx(ctx context.Context, fn func(ctx context.Context, tx any) error) error {
	handle, nested := s.TxFrom(ctx)
	if !nested {
		handle = s.handle.WithContext(ctx)
	}
	return handle.Transaction(func(tx *gorm.DB) error {
		txCtx, err := s.WithTx(ctx, tx)
		if err != nil {
			return err
		}
		return fn(txCtx, tx)
	})
}

// transactorSubject uses the adapter's Begin.
type transactorSubject struct{ subject }

func (s transactorSubject) RunInTx(ctx context.Context, fn func(ctx context.Context, tx any) error) error {
	return outbox.InTx(ctx, s.Adapter, func(ctx context.Context) error {
		tx, ok := s.TxFrom(ctx)
		if !ok {
			return sql.ErrTxDone
		}
		return fn(ctx, tx)
	})
}
