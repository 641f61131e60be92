package idempotency_test

import (
	"context"
	"fmt"
	"net/http"

	_ "modernc.org/sqlite"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/idempotency"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// An order is placed once, however often the client asks for it.
func Example() {
	ctx := context.Background()
	db, err := sqltx.Open("sqlite", "file:/keys?vfs=memdb&_txlock=immediate")
	check(err)
	defer func() { check(db.Close()) }()
	ob, err := outbox.New(outbox.Config{DB: db, Store: sqlstore.SQLite()})
	check(err)
	adapter, err := sqltx.New(db, ob.Writer())
	check(err)
	keys, err := idempotency.New(idempotency.Config{DB: db, Dialect: idempotency.SQLite})
	check(err)
	check(keys.CreateSchema(ctx))

	place := func(key string) idempotency.Answer {
		ctx, attempt, err := keys.Begin(ctx, adapter, nil, idempotency.Request{Key: key})
		check(err)
		if attempt.Done() {
			fmt.Println("it was placed before")
			return attempt.Answer()
		}
		defer func() { _ = attempt.Rollback() }() // does nothing after Commit
		tx, _ := adapter.TxFrom(ctx)
		_, err = tx.ExecContext(ctx, "CREATE TABLE orders AS SELECT 'tea' AS item")
		check(err)
		answer := idempotency.Answer{Status: http.StatusCreated, Body: []byte("tea")}
		check(attempt.Commit(answer))
		return answer
	}
	for range 2 {
		fmt.Println(place("8e03978e-40d5-43dd-bc93-6894a57f9324").Status)
	}
	// Output:
	// 201
	// it was placed before
	// 201
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
