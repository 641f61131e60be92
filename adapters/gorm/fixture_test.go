package outboxgorm_test

import (
	"database/sql"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	outboxgorm "github.com/outboxkit/outbox-go/adapters/gorm"
	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

var errTest = errors.New("a failure that the test made")

// order is a model whose hook is the test's.
type order struct {
	ID   uint
	Name string
	hook func(tx *gorm.DB) error
}

func (o *order) run(tx *gorm.DB) error {
	if o.hook == nil {
		return nil
	}
	return o.hook(tx)
}

func (o *order) AfterCreate(tx *gorm.DB) error { return o.run(tx) }
func (o *order) AfterUpdate(tx *gorm.DB) error { return o.run(tx) }
func (o *order) AfterDelete(tx *gorm.DB) error { return o.run(tx) }

// fixture is a handle on a followed pool, an adapter on it, and what the writer's
// hooks got.
type fixture struct {
	*gorm.DB
	t      *testing.T
	pool   *testdb.DB
	writer *outbox.Writer
	record *adaptertest.Record
	a      *outboxgorm.Adapter
}

// newFixture opens a handle on the pool, with a table for the model.
func newFixture(t *testing.T, pool *testdb.DB, cfg *gorm.Config) *fixture {
	t.Helper()
	f := &fixture{t: t, pool: pool, DB: open(t, pool, cfg)}
	f.writer, f.record = adaptertest.Writer(t, pool.DB, string(pool.Kind))
	require.NoError(t, f.AutoMigrate(&order{}))
	f.a = mustNew(t, f.DB, f.writer)
	return f
}

// each runs fn on every kind of database, without and with prepared statements.
func each(t *testing.T, targets []testdb.Target, fn func(t *testing.T, f *fixture)) {
	t.Helper()
	eachConfig(t, targets, gorm.Config{}, fn)
}

func eachConfig(t *testing.T, targets []testdb.Target, cfg gorm.Config, fn func(t *testing.T, f *fixture)) {
	t.Helper()
	for _, prepare := range []bool{false, true} {
		name := map[bool]string{false: "plain", true: "PrepareStmt"}[prepare]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, targets, func(t *testing.T, pool *testdb.DB) {
				cfg := cfg
				cfg.PrepareStmt = prepare
				fn(t, newFixture(t, pool, &cfg))
			})
		})
	}
}

// onSQLite is a fixture where the kind of database does not matter.
func onSQLite(t *testing.T, cfg *gorm.Config) *fixture {
	t.Helper()
	return newFixture(t, testdb.Open(t, sqliteTarget()), cfg)
}

func sqliteTarget() testdb.Target { return targetsOf(testdb.SQLite)[0] }

func targetsOf(kind testdb.Kind) (targets []testdb.Target) {
	for _, target := range adaptertest.Drivers() {
		if target.Kind == kind {
			targets = append(targets, target)
		}
	}
	return targets
}

// write writes an event, which must work.
func (f *fixture) write(tx *gorm.DB) {
	f.t.Helper()
	id, err := f.a.Write(f.t.Context(), tx, adaptertest.Event())
	require.NoError(f.t, err)
	require.NotEmpty(f.t, id)
}

// refused is the error of an event that must not be written.
func (f *fixture) refused(tx *gorm.DB) error {
	f.t.Helper()
	id, err := f.a.Write(f.t.Context(), tx, adaptertest.Event())
	require.Error(f.t, err)
	require.Empty(f.t, id)
	return err
}

// want checks how many events are in the table, and the callbacks that ran.
func (f *fixture) want(written int, outcomes ...string) {
	f.t.Helper()
	require.Equal(f.t, written, adaptertest.Written(f.t, f.pool.DB), "events in the table")
	f.record.EventuallyInAnyOrder(f.t, outcomes...)
}

// orders is how many there are.
func (f *fixture) orders() int64 {
	f.t.Helper()
	var n int64
	require.NoError(f.t, f.Model(&order{}).Count(&n).Error)
	return n
}

func mustNew(t *testing.T, db *gorm.DB, writer *outbox.Writer) *outboxgorm.Adapter {
	t.Helper()
	a, err := outboxgorm.New(db, writer)
	require.NoError(t, err)
	return a
}

// sqlTx is the *sql.Tx of a handle.
func sqlTx(t *testing.T, db *gorm.DB) *sql.Tx {
	t.Helper()
	connPool := db.Statement.ConnPool
	if prepared, ok := connPool.(*gorm.PreparedStmtTX); ok {
		connPool = prepared.Tx
	}
	require.IsType(t, &sql.Tx{}, connPool)
	return connPool.(*sql.Tx)
}
