package sqltx_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// shop is a database with an outbox whose events the examples print.
type shop struct {
	db     *sql.DB
	writer *outbox.Writer
	dir    string
}

func openShop() *shop {
	dir, err := os.MkdirTemp("", "sqltx")
	check(err)
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "shop.db"))
	check(err)
	store := sqlstore.SQLite()
	check(store.CreateSchema(context.Background(), db))
	_, err = db.ExecContext(context.Background(), "CREATE TABLE orders (id TEXT)")
	check(err)
	writer, err := outbox.NewWriter(outbox.WriterConfig{Store: store, Source: db, Hooks: []outbox.WriterHook{{
		AfterCommit: func(_ context.Context, envs []outbox.Envelope) {
			fmt.Println("committed:", envs[0].EventType, envs[0].AggregateID)
		},
		AfterRollback: func(_ context.Context, envs []outbox.Envelope, _ error) {
			fmt.Println("rolled back:", envs[0].EventType, envs[0].AggregateID)
		},
	}}})
	check(err)
	return &shop{db: db, writer: writer, dir: dir}
}

func (s *shop) close() {
	check(s.db.Close())
	check(os.RemoveAll(s.dir))
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func placed(order string) outbox.Envelope {
	return outbox.Envelope{
		EventType: "order.placed", AggregateType: "order", AggregateID: order,
		Payload: outbox.JSON(map[string]string{"order": order}),
	}
}

func ExampleAdapter_RunInTx() {
	shop := openShop()
	defer shop.close()
	ctx := context.Background()

	a := sqltx.New(shop.db, shop.writer)
	err := a.RunInTx(ctx, nil, func(ctx context.Context, tx *sqltx.Tx) error {
		if _, err := tx.ExecContext(ctx, "INSERT INTO orders (id) VALUES (?)", "o-1"); err != nil {
			return err
		}
		_, err := a.Write(ctx, tx, placed("o-1"))
		return err
	})
	fmt.Println("error:", err)
	// Output:
	// committed: order.placed o-1
	// error: <nil>
}

func ExampleAdapter_BeginTx() {
	shop := openShop()
	defer shop.close()
	ctx := context.Background()

	a := sqltx.New(shop.db, shop.writer)
	tx, err := a.BeginTx(ctx, nil)
	check(err)
	defer func() { _ = tx.Rollback() }() // after Commit it does nothing
	_, err = a.Write(ctx, tx, placed("o-1"))
	check(err)
	fmt.Println("error:", tx.Commit())
	// Output:
	// committed: order.placed o-1
	// error: <nil>
}

func ExampleAdapter_RunInTx_savepoint() {
	shop := openShop()
	defer shop.close()

	a := sqltx.New(shop.db, shop.writer)
	err := a.RunInTx(context.Background(), nil, func(ctx context.Context, tx *sqltx.Tx) error {
		if _, err := a.Write(ctx, tx, placed("o-1")); err != nil {
			return err
		}
		err := a.RunInTx(ctx, nil, func(ctx context.Context, tx *sqltx.Tx) error {
			if _, err := a.Write(ctx, tx, placed("o-2")); err != nil {
				return err
			}
			return errors.New("out of stock")
		})
		fmt.Println("the second order:", err)
		return nil
	})
	fmt.Println("error:", err)
	// Output:
	// rolled back: order.placed o-2
	// the second order: out of stock
	// committed: order.placed o-1
	// error: <nil>
}

// Code that knows neither the adapter nor the database writes with the context
// alone.
func ExampleAdapter_Begin_ambient() {
	shop := openShop()
	defer shop.close()

	place := func(ctx context.Context, order string) error {
		_, err := shop.writer.Write(ctx, placed(order))
		return err
	}
	err := outbox.InTx(context.Background(), sqltx.New(shop.db, shop.writer), func(ctx context.Context) error {
		return place(ctx, "o-1")
	})
	fmt.Println("error:", err)
	fmt.Println("outside of a transaction:", errors.Is(place(context.Background(), "o-2"), outbox.ErrNoTransaction))
	// Output:
	// committed: order.placed o-1
	// error: <nil>
	// outside of a transaction: true
}

// Code that knows only *sql.Tx can write, when the transaction began in the
// adapter.
func ExampleAdapter_Write_plainTx() {
	shop := openShop()
	defer shop.close()
	ctx := context.Background()

	a := sqltx.New(shop.db, shop.writer)
	legacy := func(tx *sql.Tx) error {
		_, err := a.Write(ctx, tx, placed("o-1"))
		return err
	}
	err := a.RunInTx(ctx, nil, func(_ context.Context, tx *sqltx.Tx) error { return legacy(tx.Tx) })
	fmt.Println("error:", err)

	plain, err := shop.db.BeginTx(ctx, nil)
	check(err)
	fmt.Println("refused:", errors.Is(legacy(plain), outbox.ErrUnmanagedTransaction))
	check(plain.Rollback())
	// Output:
	// committed: order.placed o-1
	// error: <nil>
	// refused: true
}
