package sqltx_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

// wrapper is a driver's connector in a library's: its connections get other contexts and
// other texts, as those of a library that traces and one that adds comments.
type wrapper struct{ driver.Connector }

func (w wrapper) Connect(ctx context.Context) (driver.Conn, error) {
	inner, err := w.Connector.Connect(otherContext(ctx))
	if err != nil {
		return nil, err
	}
	return &wrapperConn{inner.(fullConn)}, nil
}

type contextKey struct{}

func otherContext(ctx context.Context) context.Context {
	return context.WithValue(ctx, contextKey{}, "traced")
}

func otherText(query string) string { return "/* app='shop' */\n" + query + " -- trace='1'" }

type fullConn interface {
	driver.Conn
	driver.ConnPrepareContext
	driver.ConnBeginTx
	driver.ExecerContext
	driver.QueryerContext
}

type wrapperConn struct{ fullConn }

func (c *wrapperConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	return c.fullConn.BeginTx(otherContext(ctx), opts)
}

func (c *wrapperConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	return c.fullConn.PrepareContext(otherContext(ctx), otherText(query))
}

func (c *wrapperConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	return c.fullConn.ExecContext(otherContext(ctx), otherText(query), args)
}

func (c *wrapperConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	return c.fullConn.QueryContext(otherContext(ctx), otherText(query), args)
}

// connectorFor is the connector of a driver.
func connectorFor(t *testing.T, driverName, dsn string) driver.Connector {
	t.Helper()
	plain, err := sql.Open(driverName, dsn)
	require.NoError(t, err)
	require.NoError(t, plain.Close())
	if opener, ok := plain.Driver().(driver.DriverContext); ok {
		connector, err := opener.OpenConnector(dsn)
		require.NoError(t, err)
		return connector
	}
	return dsnConnector{plain.Driver(), dsn}
}

type dsnConnector struct {
	driver driver.Driver
	dsn    string
}

func (c dsnConnector) Connect(context.Context) (driver.Conn, error) { return c.driver.Open(c.dsn) }
func (c dsnConnector) Driver() driver.Driver                        { return c.driver }

// commentingTx is a library's transaction that changes the text of statements.
type commentingTx struct{ *innerTx }

type innerTx struct{ tx *sql.Tx }

func (t commentingTx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return t.tx.ExecContext(otherContext(ctx), otherText(query), args...)
}

func (t commentingTx) Commit() error   { return t.tx.Commit() }
func (t commentingTx) Rollback() error { return t.tx.Rollback() }

// A library's wrapper around the followed connector, or below it, that changes contexts and
// texts does not hide the transactions.
func TestWrappersOnBothSides(t *testing.T) {
	t.Parallel()
	for name, wrap := range map[string]func(driver.Connector) driver.Connector{
		"above": func(c driver.Connector) driver.Connector { return wrapper{sqltx.WrapConnector(c)} },
		"below": func(c driver.Connector) driver.Connector { return sqltx.WrapConnector(wrapper{c}) },
		"both":  func(c driver.Connector) driver.Connector { return wrapper{sqltx.WrapConnector(wrapper{c})} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, testdb.Main(), func(t *testing.T, plain *testdb.DB) {
				createTable(t, plain.DB)
				open := func(driverName, dsn string) (*sql.DB, error) {
					return sql.OpenDB(wrap(connectorFor(t, driverName, dsn))), nil
				}
				f := newFixture(t, plain.Via(t, open).DB, string(plain.Kind))

				require.NoError(t, f.a.RunInTx(t.Context(), nil, func(ctx context.Context, tx *sql.Tx) error {
					write(t, f.a, tx)
					_ = f.a.RunInTx(ctx, nil, func(_ context.Context, tx *sql.Tx) error {
						write(t, f.a, tx)
						return context.Canceled
					})
					return nil
				}))
				require.Equal(t, []string{"rollback", "commit"}, f.rec.Outcomes())

				f.rec.Reset()
				tx := begin(t, f.db)
				write(t, f.a, commentingTx{&innerTx{tx}})
				write(t, f.a, tx)
				require.NoError(t, tx.Commit())
				f.rec.Eventually(t, "commit", "commit")
				require.Equal(t, 3, written(t, plain.DB))

				other := newFixture(t, plain.Via(t, open).DB, string(plain.Kind))
				tx = begin(t, other.db)
				_, err := f.a.Write(t.Context(), tx, event())
				require.ErrorIs(t, err, outbox.ErrForeignTransaction)
				require.NoError(t, tx.Rollback())
				unfollowed := begin(t, plain.DB)
				_, err = f.a.Write(t.Context(), unfollowed, event())
				require.ErrorIs(t, err, outbox.ErrUnmanagedTransaction)
				require.NoError(t, unfollowed.Rollback())
			})
		})
	}
}

// The pool is asked without a connection, and one that has connections through them.
func TestPoolIsAskedForItsConnector(t *testing.T) {
	t.Parallel()
	inner := newRecording()
	db := sql.OpenDB(wrapper{sqltx.WrapConnector(inner)})
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	writer, _ := adaptertest.WriterWithoutTable(t, db, "sqlite")
	_, err := sqltx.New(db, writer)
	require.NoError(t, err)
	require.Zero(t, db.Stats().OpenConnections)
	require.Empty(t, inner.all())
	require.NoError(t, db.PingContext(t.Context()))
	_, err = sqltx.New(db, writer)
	require.NoError(t, err)
}
