package adaptertest

import (
	"database/sql"
	"testing"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

// Adapter makes the adapter of a followed pool.
func Adapter(t testing.TB, db *sql.DB, writer *outbox.Writer, opts ...sqltx.Option) *sqltx.Adapter {
	t.Helper()
	a, err := sqltx.New(db, writer, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// Drivers is [testdb.Drivers] with followed pools.
func Drivers() []testdb.Target { return testdb.Via(sqltx.Open, testdb.Drivers()) }

// Main is [testdb.Main] with followed pools.
func Main() []testdb.Target { return testdb.Via(sqltx.Open, testdb.Main()) }

// Servers is [testdb.Servers] with followed pools.
func Servers() []testdb.Target { return testdb.Via(sqltx.Open, testdb.Servers()) }
