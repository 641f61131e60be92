package txscope_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"

	_ "modernc.org/sqlite"

	"github.com/outboxkit/outbox-go/internal/txscope"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// An adapter in small: it begins the transaction, shows the statements to the
// scope, and commits through the session.
func Example() {
	ctx := context.Background()
	db, err := sql.Open("sqlite", ":memory:")
	check(err)
	defer func() { check(db.Close()) }()

	cfg := txscope.SessionConfig{Source: db, Dialect: txscope.SQLite}
	tx, session, err := txscope.BeginSession(ctx, cfg, func(ctx context.Context) (*sql.Tx, error) {
		return db.BeginTx(ctx, nil)
	})
	check(err)
	scope := session.Scope()
	exec := func(query string) {
		_, err := tx.ExecContext(ctx, query)
		scope.Observe(ctx, query, err)
		check(err)
	}
	// The outbox's writer does this for each event.
	register := func(event string) {
		check(scope.AfterCommit(func(context.Context) { fmt.Println("deliver", event) }))
		check(scope.AfterRollback(func(context.Context, error) { fmt.Println("forget", event) }))
	}

	register("order 1")
	exec("SAVEPOINT second")
	register("order 2")
	exec("ROLLBACK TO SAVEPOINT second")
	fmt.Println("committing")
	check(session.Commit(tx.Commit))
	fmt.Println("active:", scope.Active())
	// Output:
	// forget order 2
	// committing
	// deliver order 1
	// active: false
}

// refusal is an error of PostgreSQL, as pgx and lib/pq have it.
type refusal string

func (r refusal) Error() string    { return "refused" }
func (r refusal) SQLState() string { return string(r) }

func ExampleClassify() {
	fmt.Println(txscope.Classify(nil))
	fmt.Println(txscope.Classify(refusal("40001"))) // a serialization failure
	fmt.Println(txscope.Classify(refusal("57P01"))) // the server is shutting down
	fmt.Println(txscope.Classify(driver.ErrBadConn))
	// Output:
	// committed
	// rolled back
	// unknown
	// unknown
}

func ExampleParse() {
	for _, query := range []string{
		"INSERT INTO orders (id) VALUES (1)",
		"/* traceparent='00-abc' */ SAVEPOINT Inner",
		`ROLLBACK TO SAVEPOINT "Inner"`,
	} {
		statement := txscope.Parse(query)
		fmt.Printf("%t %t %q\n", statement.Op != txscope.None, statement.Op == txscope.RollbackTo, statement.Name)
	}
	// Output:
	// false false ""
	// true false "inner"
	// true true "Inner"
}
