package inbox_test

import (
	"context"
	"database/sql"
	"fmt"

	_ "modernc.org/sqlite"

	"github.com/outboxkit/outbox-go/inbox"
)

// A message that is delivered twice is charged once.
func Example() {
	ctx := context.Background()
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		panic(err)
	}
	defer func() { _ = db.Close() }()
	db.SetMaxOpenConns(1)
	box, err := inbox.New(inbox.Config{Dialect: inbox.SQLite})
	if err != nil {
		panic(err)
	}
	if err := box.CreateSchema(ctx, db); err != nil {
		panic(err)
	}

	receive := func(messageID string) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		first, err := box.Once(ctx, tx, "billing", messageID, func(context.Context) error {
			fmt.Println("charge for", messageID) // in tx
			return nil
		})
		if err != nil {
			return err
		}
		if !first {
			fmt.Println("skip", messageID)
		}
		return tx.Commit()
	}
	for _, id := range []string{"order-1", "order-2", "order-1"} {
		if err := receive(id); err != nil {
			panic(err)
		}
	}
	// Output:
	// charge for order-1
	// charge for order-2
	// skip order-1
}
