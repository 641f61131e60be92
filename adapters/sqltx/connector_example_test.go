package sqltx_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"modernc.org/sqlite"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// wrappedShop is a shop whose pool was opened with WrapConnector. What became of
// events arrives on told, for it comes on a goroutine of its own.
type wrappedShop struct {
	shop
	told chan string
}

func openWrappedShop() *wrappedShop {
	dir, err := os.MkdirTemp("", "sqltx")
	check(err)
	connector, err := sqlite.NewConnector("file:" + filepath.Join(dir, "shop.db"))
	check(err)
	db := sql.OpenDB(sqltx.WrapConnector(connector)) // the one line of set-up
	store := sqlstore.SQLite()
	check(store.CreateSchema(context.Background(), db))
	_, err = db.ExecContext(context.Background(), "CREATE TABLE orders (id TEXT)")
	check(err)
	told := make(chan string, 10)
	writer, err := outbox.NewWriter(outbox.WriterConfig{Store: store, Source: db, Hooks: []outbox.WriterHook{{
		AfterCommit: func(_ context.Context, envs []outbox.Envelope) {
			told <- "committed: " + envs[0].AggregateID
		},
		AfterRollback: func(_ context.Context, envs []outbox.Envelope, _ error) {
			told <- "rolled back: " + envs[0].AggregateID
		},
	}}})
	check(err)
	return &wrappedShop{shop: shop{db: db, writer: writer, dir: dir}, told: told}
}

// Queries is as sqlc generates it: it knows *sql.Tx and no outbox.
type Queries struct{ tx *sql.Tx }

func (q *Queries) WithTx(tx *sql.Tx) *Queries { return &Queries{tx: tx} }

func (q *Queries) CreateOrder(ctx context.Context, id string) error {
	_, err := q.tx.ExecContext(ctx, "INSERT INTO orders (id) VALUES (?)", id)
	return err
}

func ExampleWrapConnector() {
	shop := openWrappedShop()
	defer shop.close()
	ctx := context.Background()
	a, queries := sqltx.New(shop.db, shop.writer), new(Queries)

	place := func(order string) error {
		tx, err := shop.db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		if err := queries.WithTx(tx).CreateOrder(ctx, order); err != nil {
			return err
		}
		if _, err := a.Write(ctx, tx, placed(order)); err != nil { // the one line per event
			return err
		}
		return tx.Commit()
	}
	fmt.Println("error:", place("o-1"))
	fmt.Println(<-shop.told)
	// Output:
	// error: <nil>
	// committed: o-1
}

func ExampleWrapConnector_savepoint() {
	shop := openWrappedShop()
	defer shop.close()
	ctx := context.Background()
	a := sqltx.New(shop.db, shop.writer)

	tx, err := shop.db.BeginTx(ctx, nil)
	check(err)
	_, err = a.Write(ctx, tx, placed("o-1"))
	check(err)

	_, err = tx.ExecContext(ctx, "SAVEPOINT second")
	check(err)
	_, err = a.Write(ctx, tx, placed("o-2"))
	check(err)
	_, err = tx.ExecContext(ctx, "ROLLBACK TO SAVEPOINT second")
	check(err)
	fmt.Println(<-shop.told)

	check(tx.Commit())
	fmt.Println(<-shop.told)
	// Output:
	// rolled back: o-2
	// committed: o-1
}

// The caller's own transaction goes into the context, and code below writes with
// nothing but the outbox's writer.
func ExampleAdapter_WithTx() {
	shop := openWrappedShop()
	defer shop.close()
	a := sqltx.New(shop.db, shop.writer)
	place := func(ctx context.Context, order string) error {
		_, err := shop.writer.Write(ctx, placed(order))
		return err
	}

	tx, err := shop.db.BeginTx(context.Background(), nil)
	check(err)
	ctx, err := a.WithTx(context.Background(), tx)
	check(err)
	check(place(ctx, "o-1"))
	check(tx.Commit())
	fmt.Println(<-shop.told)
	fmt.Println("after its end:", errors.Is(place(ctx, "o-2"), outbox.ErrNoTransaction))
	// Output:
	// committed: o-1
	// after its end: true
}
