package sqltx_test

import (
	"database/sql"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
)

// statements is how many of a kind the session of a pool with one connection has
// run.
func statements(t testing.TB, db *sql.DB, kind string) (n int) {
	t.Helper()
	var name string
	require.NoError(t, db.QueryRowContext(t.Context(), "SHOW SESSION STATUS LIKE 'Com_stmt_"+kind+"'").Scan(&name, &n))
	return n
}

func TestEventsShareAPreparedStatementOnMySQL(t *testing.T) {
	t.Parallel()
	plain := openMySQL(t)
	f := followed(t, plain)
	f.db.SetMaxOpenConns(1)
	before := statements(t, f.db, "prepare")
	for range 5 {
		tx := begin(t, f.db)
		write(t, f.a, tx)
		write(t, f.a, tx)
		require.NoError(t, tx.Commit())
	}
	require.Equal(t, 10, adaptertest.Written(t, f.db))
	require.Equal(t, before+1, statements(t, f.db, "prepare"))

	tx := begin(t, f.db)
	scope := f.scopeOf(t, tx)
	for n := 2; n <= 4; n++ {
		var ids []any
		for i := range n {
			ids = append(ids, strings.Repeat("x", 10*n+i))
		}
		_, err := scope.ExecContext(t.Context(), "INSERT INTO written (id) VALUES (?)"+strings.Repeat(", (?)", n-1), ids...)
		require.NoError(t, err)
	}
	require.NoError(t, tx.Commit())
	require.Equal(t, 1, statements(t, f.db, "close"), "a connection keeps three statements")
}

func TestBorrowedConnectionGoesBackWithoutStatements(t *testing.T) {
	t.Parallel()
	base := openMySQL(t).DB
	base.SetMaxOpenConns(1)
	createTable(t, base)
	db := sqltx.Watch(base)
	f := newFixture(t, db, "mysql")
	tx := begin(t, db)
	write(t, f.a, tx)
	require.NoError(t, tx.Commit())
	require.NoError(t, db.Close())
	require.Equal(t, statements(t, base, "prepare"), statements(t, base, "close"))
	require.Positive(t, statements(t, base, "close"))
}

func TestKeptStatementOutlivesItsTableOnSQLite(t *testing.T) {
	t.Parallel()
	for _, target := range testdb.Drivers() {
		if target.Kind != testdb.SQLite {
			continue
		}
		t.Run(target.Name, func(t *testing.T) {
			t.Parallel()
			f := followed(t, testdb.Open(t, target))
			f.db.SetMaxOpenConns(1)
			for range 3 {
				tx := begin(t, f.db)
				write(t, f.a, tx)
				require.NoError(t, tx.Commit())
				require.Equal(t, 1, adaptertest.Written(t, f.db))
				adaptertest.Exec(t, f.db, "DROP TABLE written", "CREATE TABLE written (more INTEGER, id VARCHAR(64) NOT NULL PRIMARY KEY)")
			}
		})
	}
}
