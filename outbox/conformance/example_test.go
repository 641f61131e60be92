package conformance_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"

	_ "modernc.org/sqlite"

	"github.com/outboxkit/outbox-go/outbox/conformance"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// A test of a store of your own, here of the one in memory.
func ExampleRunStore() {
	TestStore := func(t *testing.T) {
		conformance.RunStore(t, func(*testing.T) conformance.StoreHarness {
			return conformance.MemoryHarness(outboxtest.NewStore())
		})
	}
	_ = TestStore // a function of your test file
}

// SQLHarness makes the harness of a store on database/sql. Each subtest gets a table
// of its own.
func ExampleSQLHarness() {
	TestStore := func(t *testing.T) {
		conformance.RunStore(t, func(t *testing.T) conformance.StoreHarness {
			db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "store.db")+"?_pragma=busy_timeout(30000)&_pragma=journal_mode(WAL)&_txlock=immediate")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = db.Close() })
			store := sqlstore.SQLite(sqlstore.WithKeyIndex(), sqlstore.WithTenantIndex()) // your store
			if err := store.CreateSchema(context.Background(), db); err != nil {
				t.Fatal(err)
			}
			return conformance.SQLHarness(store, db, conformance.SQLite)
		})
	}
	_ = TestStore
}
