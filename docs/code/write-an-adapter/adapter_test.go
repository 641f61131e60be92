package outboxsqlx_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	outboxsqlx "github.com/outboxkit/outbox-go/docs/code/write-an-adapter"
	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/conformance"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	conformance.RunAdapter(t, func(t *testing.T) conformance.AdapterHarness {
		path := filepath.Join(t.TempDir(), "test.db")
		dsn := "file:" + path + "?_pragma=busy_timeout(30000)&_pragma=journal_mode(WAL)&_txlock=immediate"
		followed, err := sqltx.Open("sqlite", dsn)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, followed.Close()) })
		plain, err := sql.Open("sqlite", dsn) // its transactions are unmanaged
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, plain.Close()) })
		return conformance.AdapterHarness{
			DB: followed, Dialect: conformance.SQLite,
			New: func(writer *outbox.Writer, allowUnmanaged bool) conformance.AdapterUnderTest {
				var opts []sqltx.Option
				if allowUnmanaged {
					opts = append(opts, sqltx.AllowUnmanaged())
				}
				db := sqlx.NewDb(followed, "sqlite")
				a, err := outboxsqlx.New(db, writer, opts...)
				require.NoError(t, err)
				return subject{Adapter: a, db: db, plain: sqlx.NewDb(plain, "sqlite")}
			},
		}
	})
}

// subject gives the suite the adapter and the library, with the type of the transaction
// hidden.
type subject struct {
	*outboxsqlx.Adapter
	db, plain *sqlx.DB
}

func (s subject) RunInTx(ctx context.Context, fn func(ctx context.Context, tx any) error) error {
	return outbox.InTx(ctx, s.Adapter, func(ctx context.Context) error {
		tx, _ := s.TxFrom(ctx)
		return fn(ctx, tx)
	})
}

func (s subject) BeginTx(ctx context.Context) (any, error)   { return s.db.BeginTxx(ctx, nil) }
func (s subject) Unmanaged(ctx context.Context) (any, error) { return s.plain.BeginTxx(ctx, nil) }
func (s subject) Commit(tx any) error                        { return tx.(*sqlx.Tx).Commit() }
func (s subject) Rollback(tx any) error                      { return tx.(*sqlx.Tx).Rollback() }

func (s subject) Exec(ctx context.Context, tx any, query string) error {
	_, err := tx.(*sqlx.Tx).ExecContext(ctx, query)
	return err
}

func (s subject) Write(ctx context.Context, tx any, env outbox.Envelope) (string, error) {
	return s.Adapter.Write(ctx, tx.(*sqlx.Tx), env)
}

func (s subject) WriteAll(ctx context.Context, tx any, envs []outbox.Envelope) ([]string, error) {
	return s.Adapter.WriteAll(ctx, tx.(*sqlx.Tx), envs)
}

func (s subject) AfterCommit(ctx context.Context, tx any, fn func(ctx context.Context)) error {
	return s.Adapter.AfterCommit(ctx, tx.(*sqlx.Tx), fn)
}

func (s subject) AfterRollback(ctx context.Context, tx any, fn func(ctx context.Context, cause error)) error {
	return s.Adapter.AfterRollback(ctx, tx.(*sqlx.Tx), fn)
}

func TestHandleCompletesTheEvent(t *testing.T) {
	t.Parallel()
	for _, target := range adaptertest.Main() {
		t.Run(target.Name, func(t *testing.T) {
			t.Parallel()
			db := testdb.Open(t, target)
			adaptertest.HandleCompletes(t, db, func(w *outbox.Writer, fn func(exec func(query string) error) error) (outbox.Transactor, outbox.Listener) {
				a, err := outboxsqlx.New(sqlx.NewDb(db.DB, target.Name), w)
				require.NoError(t, err)
				return a, a.Handle(func(ctx context.Context, tx *sqlx.Tx, _ outbox.Envelope) error {
					return fn(func(query string) error {
						_, err := tx.ExecContext(ctx, query)
						return err
					})
				})
			})
		})
	}
}
