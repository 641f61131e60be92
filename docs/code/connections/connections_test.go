// Package connections_test holds the Go code of docs/how-to/connections.md.
package connections_test

import (
	"database/sql"
	"os"
	"testing"
	"time"

	_ "github.com/mattn/go-sqlite3"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
)

// newDB opens the pool of a service that answers up to 30 requests at once, and whose 16
// workers use the same database.
func newDB() (*sql.DB, error) {
	db, err := sqltx.Open("pgx", os.Getenv("DATABASE_URL"))
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(30 + 16 + 9) // requests, listeners, the outbox itself
	db.SetMaxIdleConns(20)          // database/sql keeps only 2 by default
	db.SetConnMaxIdleTime(5 * time.Minute)
	return db, nil
}

func Example() {
	_, err := newDB()
	if err != nil {
		panic(err)
	}
}

// The options of SQLite that the page names are understood by both drivers.
func TestSQLitesOptions(t *testing.T) {
	t.Parallel()
	modernc := func(file string) (*sql.DB, error) {
		return sqltx.Open("sqlite", file+"?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_txlock=immediate")
	}
	mattn := func(file string) (*sql.DB, error) {
		return sqltx.Open("sqlite3", file+"?_busy_timeout=5000&_journal_mode=WAL&_txlock=immediate")
	}
	for name, open := range map[string]func(string) (*sql.DB, error){"modernc": modernc, "mattn": mattn} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, err := open("file:" + t.TempDir() + "/shop.db")
			require.NoError(t, err)
			defer db.Close()
			if err := db.PingContext(t.Context()); err != nil && name == "mattn" {
				t.Skip("mattn/go-sqlite3 needs cgo: " + err.Error())
			}
			var timeout int
			require.NoError(t, db.QueryRowContext(t.Context(), "PRAGMA busy_timeout").Scan(&timeout))
			require.Equal(t, 5000, timeout)
			var journal string
			require.NoError(t, db.QueryRowContext(t.Context(), "PRAGMA journal_mode").Scan(&journal))
			require.Equal(t, "wal", journal)
		})
	}
}
