package sqltx_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/internal/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/conformance"
)

// connectorOf opens connections as the pool does.
func connectorOf(t testing.TB, db *testdb.DB) driver.Connector {
	t.Helper()
	if opener, ok := db.Driver().(driver.DriverContext); ok {
		c, err := opener.OpenConnector(db.DSN)
		require.NoError(t, err)
		return c
	}
	return dsnConnector{db.Driver(), db.DSN}
}

// dsnConnector is what database/sql makes of a driver that has no connectors.
type dsnConnector struct {
	driver driver.Driver
	dsn    string
}

func (c dsnConnector) Connect(context.Context) (driver.Conn, error) { return c.driver.Open(c.dsn) }
func (c dsnConnector) Driver() driver.Driver                        { return c.driver }

// wrappedPool opens another pool on the database, with WrapConnector.
func wrappedPool(t testing.TB, db *testdb.DB) *sql.DB {
	t.Helper()
	pool := sql.OpenDB(sqltx.WrapConnector(connectorOf(t, db)))
	pool.SetMaxOpenConns(8)
	pool.SetMaxIdleConns(8)
	t.Cleanup(func() { require.NoError(t, pool.Close()) })
	return pool
}

// The same suite for transactions that the adapter did not begin.
func TestConformanceOfWrapConnector(t *testing.T) {
	t.Parallel()
	for _, target := range testdb.Drivers() {
		t.Run(target.Name, func(t *testing.T) {
			t.Parallel()
			conformance.RunAdapter(t, func(t *testing.T) conformance.AdapterHarness {
				bare := testdb.Open(t, target)
				db := wrappedPool(t, bare)
				return conformance.AdapterHarness{
					DB: db, Dialect: conformance.Dialect(target.Kind), Async: true,
					// This driver gives a connection up when RELEASE fails, which plain
					// statements cannot foresee.
					FrameworkSavepoints: target.Name == "postgres/pgdriver",
					New: func(writer *outbox.Writer, allowUnmanaged bool) conformance.AdapterUnderTest {
						var opts []sqltx.Option
						if allowUnmanaged {
							opts = append(opts, sqltx.AllowUnmanaged())
						}
						second, err := outbox.NewWriter(outbox.WriterConfig{Store: writer.Store(), Source: bare.DB})
						require.NoError(t, err)
						return plainSubject{
							subject: subject{Adapter: sqltx.New(db, writer, opts...), db: db},
							bare:    subject{Adapter: sqltx.New(bare.DB, second, opts...), db: bare.DB},
						}
					},
				}
			})
		})
	}
}

// plainSubject is code that knows only database/sql, and makes its savepoints by
// hand. It leaves the Transactor to the adapter.
//
// There is no transaction on a wrapped pool that nobody knows of. The suite's are
// those of a second pool, which is not wrapped and has an adapter of its own.
type plainSubject struct {
	subject
	bare subject
}

// bareTx is a transaction of the second pool.
type bareTx struct{ *sql.Tx }

func (s plainSubject) Unmanaged(ctx context.Context) (any, error) {
	tx, err := s.bare.db.BeginTx(ctx, nil)
	return bareTx{tx}, err
}

func (s plainSubject) Write(ctx context.Context, tx any, env outbox.Envelope) (string, error) {
	if tx, ok := tx.(bareTx); ok {
		return s.bare.Write(ctx, tx.Tx, env)
	}
	return s.subject.Write(ctx, tx, env)
}

func (s plainSubject) BeginTx(ctx context.Context) (any, error) { return s.db.BeginTx(ctx, nil) }

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
