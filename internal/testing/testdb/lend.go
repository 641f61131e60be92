package testdb

import (
	"context"
	"sync"
	"testing"
)

// Lend returns a function that lends databases to the subtests of t, each to a single subtest at a
// time, so that a suite creates as many databases as the subtests use at once. open opens a
// database with its tables, and empty deletes the rows that a subtest left in the tables. The
// database of a failed subtest is not lent again. All databases are dropped when t ends.
func Lend(t testing.TB, open func(t testing.TB) *DB, empty func(t testing.TB, db *DB)) func(t testing.TB) *DB {
	t.Helper()
	var mu sync.Mutex
	var free []*DB
	return func(sub testing.TB) *DB {
		sub.Helper()
		mu.Lock()
		var db *DB
		if n := len(free); n > 0 {
			db, free = free[n-1], free[:n-1]
		}
		mu.Unlock()
		if db == nil {
			db = open(borrower{sub, t})
		}
		db.SetMaxIdleConns(maxConns)
		sub.Cleanup(func() {
			if sub.Failed() {
				_ = db.Close()
				return
			}
			empty(sub, db)
			db.SetMaxIdleConns(0) // many suites run at once, and servers limit connections
			mu.Lock()
			defer mu.Unlock()
			free = append(free, db)
		})
		return db
	}
}

// EmptyTables deletes the rows of the outbox's tables, except for the version.
func EmptyTables(t testing.TB, db *DB) {
	t.Helper()
	for _, statement := range []string{"DELETE FROM outbox_event", "DELETE FROM outbox_event_control WHERE kind <> 'schema'"} {
		if _, err := db.ExecContext(context.WithoutCancel(t.Context()), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

// borrower fails a subtest, and leaves the cleanups to the parent.
type borrower struct {
	testing.TB
	parent testing.TB
}

func (b borrower) Cleanup(f func()) { b.parent.Cleanup(f) }
func (b borrower) TempDir() string  { return b.parent.TempDir() }
