package adaptertest

import (
	"database/sql"
	"testing"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
)

// Conflicting is a database on which [Conflict] works, with the options of its transactions.
func Conflicting(t testing.TB, db *testdb.DB) (*testdb.DB, *sql.TxOptions) {
	t.Helper()
	Exec(t, db.DB, "CREATE TABLE IF NOT EXISTS contended (id INTEGER NOT NULL PRIMARY KEY, n INTEGER NOT NULL)", "INSERT INTO contended (id, n) VALUES (1, 0)")
	if db.Kind == testdb.SQLite {
		return db.Reopen(t, testdb.Param("_txlock", "deferred")), nil
	}
	return db, &sql.TxOptions{Isolation: sql.LevelRepeatableRead}
}

// Conflict makes the database refuse a statement of a transaction because of another transaction, and
// returns the error: a deadlock on MySQL, a change of a row that the other transaction has changed
// elsewhere. exec runs a statement in the transaction.
func Conflict(t testing.TB, db *testdb.DB, exec func(query string) error) error {
	t.Helper()
	if db.Kind == testdb.MySQL {
		Exec(t, db.DB, "DROP TABLE IF EXISTS locked")
		return Deadlock(t, db.DB, exec)
	}
	if err := exec("SELECT n FROM contended"); err != nil {
		t.Error(err)
	}
	Exec(t, db.DB, "UPDATE contended SET n = n + 1 WHERE id = 1")
	err := exec("UPDATE contended SET n = n - 1 WHERE id = 1")
	if err == nil {
		t.Error("there was no conflict")
	}
	return err
}
