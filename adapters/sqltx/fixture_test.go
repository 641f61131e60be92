package sqltx_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

// fixture is a followed pool with the table, an adapter, and a record of what the
// writer's hooks got.
type fixture struct {
	db     *sql.DB
	writer *outbox.Writer
	a      *sqltx.Adapter
	rec    *adaptertest.Record
}

func newFixture(t testing.TB, db *sql.DB, dialect string, opts ...sqltx.Option) fixture {
	t.Helper()
	f := fixture{db: db}
	f.writer, f.rec = adaptertest.WriterWithoutTable(t, db, dialect)
	f.a = adaptertest.Adapter(t, db, f.writer, opts...)
	return f
}

// followed is a fixture on a followed pool of the database.
func followed(t testing.TB, plain *testdb.DB) fixture {
	t.Helper()
	createTable(t, plain.DB)
	return newFixture(t, followedPool(t, plain), string(plain.Kind))
}

func createTable(t testing.TB, db *sql.DB) {
	t.Helper()
	adaptertest.Exec(t, db, "CREATE TABLE written (id VARCHAR(64) NOT NULL PRIMARY KEY)")
}

func written(t testing.TB, db *sql.DB) int {
	t.Helper()
	return adaptertest.Written(t, db)
}

func event() outbox.Envelope { return adaptertest.Event() }

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

func (r recording) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(*r.sent)
}

// fixedConnector has one connection.
type fixedConnector struct {
	nothing
	conn driver.Conn
}

func (c fixedConnector) Connect(context.Context) (driver.Conn, error) { return c.conn, nil }

// open opens a followed pool on a connector.
func open(t testing.TB, inner driver.Connector) *sql.DB {
	t.Helper()
	db := sqltx.OpenDB(inner)
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

func exec(t testing.TB, tx outbox.Execer, query string) {
	t.Helper()
	_, err := tx.ExecContext(t.Context(), query)
	require.NoError(t, err)
}

// scopeOf is what callbacks are registered with.
func (f fixture) scopeOf(t testing.TB, tx *sql.Tx) outbox.TxScope {
	t.Helper()
	ctx, err := f.a.WithTx(t.Context(), tx)
	require.NoError(t, err)
	scope, ok := outbox.ScopeFromContext(ctx, f.db)
	require.True(t, ok)
	return scope
}
