package testdb_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
)

// subtest ends when the test says so.
type subtest struct {
	testing.TB
	failed   bool
	cleanups []func()
}

func (s *subtest) Cleanup(f func()) { s.cleanups = append(s.cleanups, f) }
func (s *subtest) Failed() bool     { return s.failed }

func (s *subtest) end() {
	for _, f := range s.cleanups {
		f()
	}
}

func TestLentDatabasesAreEmptyAndNotShared(t *testing.T) {
	t.Parallel()
	opened := 0
	lend := testdb.Lend(t, func(t testing.TB) *testdb.DB {
		opened++
		db := testdb.Open(t, testdb.Main()[2])
		_, err := db.ExecContext(t.Context(), "CREATE TABLE own (id INT)")
		require.NoError(t, err)
		return db
	}, func(t testing.TB, db *testdb.DB) {
		_, err := db.ExecContext(t.Context(), "DELETE FROM own")
		require.NoError(t, err)
	})
	borrow := func(want int) *subtest {
		sub := &subtest{TB: t}
		db, n := lend(sub), 0
		require.Equal(t, want, opened)
		require.NoError(t, db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM own").Scan(&n))
		require.Zero(t, n)
		_, err := db.ExecContext(t.Context(), "INSERT INTO own VALUES (1)")
		require.NoError(t, err)
		return sub
	}
	first := borrow(1)
	second := borrow(2)
	first.end()
	third := borrow(2)
	second.failed = true
	second.end()
	borrow(3).end()
	third.end()
	borrow(3).end()
}
