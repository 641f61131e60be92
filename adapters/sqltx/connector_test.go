package sqltx_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/internal/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

// eventually waits for the outcomes; wrapped connections tell them a little
// later.
func (r *record) eventually(t testing.TB, want ...string) {
	t.Helper()
	require.Eventually(t, func() bool { return len(r.all()) >= len(want) }, 20*time.Second, time.Millisecond, "%v", want)
	require.Equal(t, want, r.all())
}

// recording is the driver that does nothing, and notes what it is sent.
type recording struct {
	nothing
	mu   *sync.Mutex
	sent *[]string
}

func newRecording() recording { return recording{mu: new(sync.Mutex), sent: new([]string)} }

func (r recording) Connect(context.Context) (driver.Conn, error) { return r, nil }

func (r recording) ExecContext(_ context.Context, query string, _ []driver.NamedValue) (driver.Result, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	*r.sent = append(*r.sent, query)
	return driver.ResultNoRows, nil
}

func openWrapped(t testing.TB, inner driver.Connector) *sql.DB {
	t.Helper()
	db := sql.OpenDB(sqltx.WrapConnector(inner))
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

func begin(t testing.TB, db *sql.DB) *sql.Tx {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

func write(t testing.TB, a *sqltx.Adapter, tx sqltx.AnyTx) {
	t.Helper()
	id, err := a.Write(t.Context(), tx, event())
	require.NoError(t, err)
	require.NotEmpty(t, id)
}

func exec(t testing.TB, tx sqltx.AnyTx, query string) {
	t.Helper()
	_, err := tx.ExecContext(t.Context(), query)
	require.NoError(t, err)
}

func TestPlainTransactionIsFoundWithoutARoundTrip(t *testing.T) {
	t.Parallel()
	inner := newRecording()
	db := openWrapped(t, inner)
	rec := &record{}
	a := sqltx.New(db, newWriter(t, db, "sqlite", rec.hook()))
	tx := begin(t, db)
	write(t, a, tx)
	require.NoError(t, tx.Commit())
	require.Equal(t, []string{"INSERT INTO written (id) VALUES (?)"}, *inner.sent)
	rec.eventually(t, "commit")

	_, err := a.Write(t.Context(), tx, event())
	require.ErrorIs(t, err, outbox.ErrNoTransaction)
	require.Len(t, *inner.sent, 1)
	_, err = db.ExecContext(t.Context(), "SELECT 1") // the user's own
	require.NoError(t, err)
	require.Len(t, *inner.sent, 2)
}

func TestWrappedConnectorIsNotWrappedAgain(t *testing.T) {
	t.Parallel()
	once := sqltx.WrapConnector(nothing{})
	require.Same(t, once, sqltx.WrapConnector(once))
	require.Equal(t, nothing{}, once.Driver())
}

func TestNilConnectorFailsToConnect(t *testing.T) {
	t.Parallel()
	for _, inner := range []driver.Connector{nil, (*dsnConnector)(nil)} {
		db := openWrapped(t, inner)
		require.EqualError(t, db.PingContext(t.Context()), "outbox: sqltx.WrapConnector connector is nil")
		require.Nil(t, db.Driver())
	}
}

type closingConnector struct {
	nothing
	closed *int
}

func (c closingConnector) Close() error { *c.closed++; return nil }

func TestConnectorIsClosedWithThePool(t *testing.T) {
	t.Parallel()
	closed := 0
	require.NoError(t, sql.OpenDB(sqltx.WrapConnector(closingConnector{closed: &closed})).Close())
	require.Equal(t, 1, closed)
}

// A transaction of another pool must not be written in, though it is wrapped as
// well and its connection has a scope to offer.
func TestPlainTransactionOfAnotherPoolIsRefused(t *testing.T) {
	t.Parallel()
	here, there, unwrapped := openWrapped(t, newRecording()), openWrapped(t, newRecording()), sql.OpenDB(nothing{})
	t.Cleanup(func() { require.NoError(t, unwrapped.Close()) })
	hidden := sql.OpenDB(hiding{sqltx.WrapConnector(nothing{})})
	t.Cleanup(func() { require.NoError(t, hidden.Close()) })
	const otherPool = "write with the adapter of that one"
	for _, test := range []struct {
		name    string
		pool    *sql.DB
		tx      *sql.DB
		wayOut  string
		options []sqltx.Option
	}{
		{"wrapped pools", here, there, otherPool, nil},
		{"wrapped pools, unmanaged allowed", here, there, otherPool, []sqltx.Option{sqltx.AllowUnmanaged()}},
		{"adapter of an unwrapped pool", unwrapped, there, otherPool, nil},
		{"transaction of an unwrapped pool", here, unwrapped, otherPool, nil},
		{"another wrapper outside", hidden, hidden, "sqltx.WrapConnector, which has to be the outermost", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			a := sqltx.New(test.pool, newWriter(t, test.pool, "sqlite"), test.options...)
			_, err := a.Write(t.Context(), begin(t, test.tx), event())
			require.ErrorIs(t, err, outbox.ErrForeignTransaction)
			require.ErrorContains(t, err, test.wayOut)
		})
	}
}

// Nobody but its connection tells the pool of a transaction of another type.
func TestTransactionOfAnotherTypeAndPoolIsRefused(t *testing.T) {
	t.Parallel()
	here, there := openWrapped(t, newRecording()), openWrapped(t, newRecording())
	_, err := sqltx.New(here, newWriter(t, here, "sqlite")).Write(t.Context(), &generatedTx{begin(t, there)}, event())
	require.ErrorIs(t, err, outbox.ErrForeignTransaction)
}

// hiding is a wrapper around ours.
type hiding struct{ driver.Connector }

// An adapter's own transactions have callbacks of their own; the connection
// below must not run them again.
func TestAdapterAboveAWrappedConnectorFiresOnce(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, bare *testdb.DB) {
		createTable(t, bare.DB)
		db := wrappedPool(t, bare)
		rec := &record{}
		a := sqltx.New(db, newWriter(t, db, string(bare.Kind), rec.hook()))
		require.NoError(t, a.RunInTx(t.Context(), nil, func(_ context.Context, tx *sqltx.Tx) error {
			write(t, a, tx)
			write(t, a, tx.Tx)
			return nil
		}))
		require.Equal(t, []string{"commit", "commit"}, rec.all(), "before RunInTx returns")

		// A marker behind it: nothing is on its way any more.
		tx := begin(t, db)
		write(t, a, tx)
		require.NoError(t, tx.Rollback())
		rec.eventually(t, "commit", "commit", "rollback")
		require.Equal(t, 2, written(t, db))
	})
}

func TestRawConnectionUnwrapsToTheDrivers(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Drivers(), func(t *testing.T, bare *testdb.DB) {
		typeOf := func(db *sql.DB, unwrap bool) (typ reflect.Type) {
			conn, err := db.Conn(t.Context())
			require.NoError(t, err)
			defer func() { require.NoError(t, conn.Close()) }()
			require.NoError(t, conn.Raw(func(c any) error {
				if unwrap {
					c = c.(interface{ Unwrap() driver.Conn }).Unwrap()
				}
				typ = reflect.TypeOf(c)
				return nil
			}))
			return typ
		}
		require.Equal(t, typeOf(bare.DB, false), typeOf(wrappedPool(t, bare), true))
	})
}

// What a driver does through statements of its own works as before.
func TestCopyOfPqWorksInAWrappedTransaction(t *testing.T) {
	t.Parallel()
	for _, target := range testdb.Drivers() {
		if target.Name != "postgres/pq" {
			continue
		}
		bare := testdb.Open(t, target)
		createTable(t, bare.DB)
		rec := &record{}
		for _, inner := range []driver.Connector{connectorOf(t, bare), disguised{connectorOf(t, bare)}} {
			db := openWrapped(t, inner)
			a := sqltx.New(db, newWriter(t, db, "postgres", rec.hook()))
			tx := begin(t, db)
			stmt, err := tx.PrepareContext(t.Context(), "COPY written (id) FROM STDIN")
			require.NoError(t, err)
			for i := range 3 {
				_, err = stmt.ExecContext(t.Context(), fmt.Sprintf("%T %d", inner, i))
				require.NoError(t, err)
			}
			_, err = stmt.ExecContext(t.Context())
			require.NoError(t, err)
			require.NoError(t, stmt.Close())
			write(t, a, tx)
			require.NoError(t, tx.Commit())
		}
		rec.eventually(t, "commit", "commit")
		require.Equal(t, 8, written(t, bare.DB))
	}
}
