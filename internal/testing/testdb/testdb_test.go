package testdb_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
)

func TestEachTestHasItsOwnDatabase(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Drivers(), func(t *testing.T, db *testdb.DB) {
		other := testdb.Open(t, targetOf(db.Name))
		for _, d := range []*testdb.DB{db, other} {
			_, err := d.ExecContext(t.Context(), "CREATE TABLE own (id INT)")
			require.NoError(t, err)
		}
		_, err := db.ExecContext(t.Context(), "INSERT INTO own VALUES (1)")
		require.NoError(t, err)
		for d, want := range map[*testdb.DB]int{db: 1, db.Reopen(t): 1, other: 0} {
			var n int
			require.NoError(t, d.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM own").Scan(&n))
			require.Equal(t, want, n)
		}
	})
}

func TestMySQLURLs(t *testing.T) {
	for given, want := range map[string]string{
		"":                            testdb.DefaultMySQL,
		"u:p@tcp(h:1)/d?x=1":          "u:p@tcp(h:1)/d?x=1",
		"mysql://u:p@h:1/d?x=1":       "u:p@tcp(h:1)/d?x=1",
		"mysql://u:p@ss@127.0.0.1:1/": "u:p@ss@tcp(127.0.0.1:1)/",
		"mysql://u:p%40s%2Fs@h:1/d":   "u:p@s/s@tcp(h:1)/d",
	} {
		t.Setenv(testdb.MySQLVar, given)
		require.Equal(t, want, testdb.MySQLDSN())
	}
}

func targetOf(name string) testdb.Target {
	for _, target := range testdb.Drivers() {
		if target.Name == name {
			return target
		}
	}
	panic("no target " + name)
}
