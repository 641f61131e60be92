package inbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/outboxkit/outbox-go/inbox"
)

// openBilling opens a database with the inbox of the consumer "billing".
func openBilling(ctx context.Context) (*sql.DB, *inbox.Inbox) {
	db, err := sql.Open("sqlite", ":memory:")
	check(err)
	db.SetMaxOpenConns(1)
	box, err := inbox.New(inbox.Config{Dialect: inbox.SQLite})
	check(err)
	check(box.CreateSchema(ctx, db))
	return db, box
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// New reports all mistakes of a configuration together.
func ExampleNew() {
	_, err := inbox.New(inbox.Config{Dialect: inbox.Postgres, Table: "billing.inbox_message"})
	fmt.Println(err)
	_, err = inbox.New(inbox.Config{Dialect: "oracle"})
	fmt.Println(err != nil)
	// Output:
	// <nil>
	// true
}

// Once runs the function with the first delivery of a message. It shares the transaction
// with what the function writes.
func ExampleInbox_Once() {
	ctx := context.Background()
	db, box := openBilling(ctx)
	defer db.Close()
	for range 2 { // the message is delivered twice
		tx, err := db.BeginTx(ctx, nil)
		check(err)
		first, err := box.Once(ctx, tx, "billing", "message-1", func(context.Context) error {
			fmt.Println("charge")
			return nil
		})
		check(err)
		check(tx.Commit()) // then acknowledge the message
		fmt.Println("first:", first)
	}
	// Output:
	// charge
	// first: true
	// first: false
}

// Purge runs from time to time. Records must outlive the last delivery of their message.
func ExampleInbox_Purge() {
	ctx := context.Background()
	db, box := openBilling(ctx)
	defer db.Close()
	deleted, err := box.Purge(ctx, db, 30*24*time.Hour)
	fmt.Println(deleted, err)
	// Output:
	// 0 <nil>
}

// CreateSchema may run in each process at each start.
func ExampleInbox_CreateSchema() {
	ctx := context.Background()
	db, box := openBilling(ctx) // which creates it
	defer db.Close()
	fmt.Println(box.CreateSchema(ctx, db))
	// Output:
	// <nil>
}

// Schema is the DDL for a migration.
func ExampleInbox_Schema() {
	box, err := inbox.New(inbox.Config{Dialect: inbox.Postgres})
	check(err)
	ddl, _, _ := strings.Cut(box.Schema(), "(")
	fmt.Println(ddl)
	// Output:
	// CREATE TABLE IF NOT EXISTS "inbox_message"
}
