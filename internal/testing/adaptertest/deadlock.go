package adaptertest

import (
	"database/sql"
	"testing"
)

// Deadlock makes InnoDB choose a transaction as the victim of a deadlock, because it is the lighter
// of two. exec runs a statement in that transaction. Deadlock returns the error of the deadlock.
func Deadlock(t testing.TB, db *sql.DB, exec func(query string) error) error {
	t.Helper()
	ctx := t.Context()
	Exec(t, db, "CREATE TABLE locked (id INTEGER NOT NULL PRIMARY KEY, n INTEGER NOT NULL)",
		"INSERT INTO locked (id, n) VALUES (1, 0), (2, 0)")
	heavy, err := db.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = heavy.Rollback() }()
	for _, statement := range []string{
		"INSERT INTO locked (id, n) VALUES (101, 0), (102, 0), (103, 0), (104, 0), (105, 0), (106, 0)",
		"UPDATE locked SET n = 1 WHERE id = 1",
	} {
		if _, err := heavy.ExecContext(ctx, statement); err != nil {
			t.Fatal(err)
		}
	}
	if err := exec("UPDATE locked SET n = 2 WHERE id = 2"); err != nil {
		t.Fatal(err)
	}
	blocked := make(chan error, 1)
	go func() {
		_, err := heavy.ExecContext(ctx, "UPDATE locked SET n = 1 WHERE id = 2")
		blocked <- err
	}()
	// Whichever statement comes second, the lighter transaction is the victim.
	err = exec("UPDATE locked SET n = 2 WHERE id = 1")
	if err == nil {
		t.Fatal("there was no deadlock")
	}
	if err := <-blocked; err != nil {
		t.Fatal(err)
	}
	return err
}
