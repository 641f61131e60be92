package outboxbun_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/sqlitedialect"

	outboxbun "github.com/outboxkit/outbox-go/adapters/bun"
	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/outbox"
)

// order is a row of the shop's own.
type order struct {
	ID string `bun:",pk"`
}

// shop is a database with an outbox whose events the examples print.
type shop struct {
	db     *bun.DB
	writer *outbox.Writer
	dir    string
	hooks  chan struct{}
}

func openShop() *shop {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "outboxbun")
	check(err)
	pool, err := sqltx.Open("sqlite", "file:"+filepath.Join(dir, "shop.db"))
	check(err)
	db := bun.NewDB(pool, sqlitedialect.New())
	_, err = db.NewCreateTable().Model((*order)(nil)).Exec(ctx)
	check(err)
	store, err := outboxbun.Store(db)
	check(err)
	check(store.CreateSchema(ctx, pool))
	hooks := make(chan struct{}, 10)
	ob, err := outbox.New(outbox.Config{DB: pool, Store: store, Mode: outbox.WriterOnly{}, Hooks: []outbox.WriterHook{{
		AfterCommit: func(_ context.Context, envs []outbox.Envelope) {
			fmt.Println("committed:", envs[0].EventType, envs[0].AggregateID)
			hooks <- struct{}{}
		},
		AfterRollback: func(_ context.Context, envs []outbox.Envelope, _ error) {
			fmt.Println("rolled back:", envs[0].EventType, envs[0].AggregateID)
			hooks <- struct{}{}
		},
	}}})
	check(err)
	writer := ob.Writer()
	return &shop{db: db, writer: writer, dir: dir, hooks: hooks}
}

func (s *shop) adapter() *outboxbun.Adapter {
	a, err := outboxbun.New(s.db, s.writer)
	check(err)
	return a
}

// wait waits for a hook: they run soon after the transaction has ended.
func (s *shop) wait() { <-s.hooks }

func (s *shop) close() {
	check(s.db.Close())
	check(os.RemoveAll(s.dir))
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func placed(id string) outbox.Envelope {
	return outbox.Envelope{
		EventType: "order.placed", AggregateType: "order", AggregateID: id,
		Payload: outbox.JSON(map[string]string{"order": id}),
	}
}

func Example() {
	shop := openShop()
	defer shop.close()

	a := shop.adapter()
	err := shop.db.RunInTx(context.Background(), nil, func(ctx context.Context, tx bun.Tx) error {
		if _, err := tx.NewInsert().Model(&order{ID: "o-1"}).Exec(ctx); err != nil {
			return err
		}
		_, err := a.Write(ctx, tx, placed("o-1"))
		return err
	})
	fmt.Println("error:", err)
	shop.wait()
	// Unordered output:
	// committed: order.placed o-1
	// error: <nil>
}

func Example_beginAndCommit() {
	shop := openShop()
	defer shop.close()
	ctx := context.Background()

	a := shop.adapter()
	tx, err := shop.db.BeginTx(ctx, nil)
	check(err)
	defer func() { _ = tx.Rollback() }() // after Commit it does nothing
	_, err = a.Write(ctx, tx, placed("o-1"))
	check(err)
	fmt.Println("error:", tx.Commit())
	shop.wait()
	// Unordered output:
	// committed: order.placed o-1
	// error: <nil>
}

func Example_savepoint() {
	shop := openShop()
	defer shop.close()

	a := shop.adapter()
	err := shop.db.RunInTx(context.Background(), nil, func(ctx context.Context, tx bun.Tx) error {
		if _, err := a.Write(ctx, tx, placed("o-1")); err != nil {
			return err
		}
		err := tx.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
			if _, err := a.Write(ctx, tx, placed("o-2")); err != nil {
				return err
			}
			return errors.New("out of stock")
		})
		fmt.Println("the second order:", err)
		return nil
	})
	fmt.Println("error:", err)
	shop.wait()
	shop.wait()
	// Unordered output:
	// rolled back: order.placed o-2
	// the second order: out of stock
	// committed: order.placed o-1
	// error: <nil>
}

// audited is a model whose hook writes an event in the transaction of the
// statement.
type audited struct {
	bun.BaseModel `bun:"table:orders"`
	ID            string `bun:",pk"`
}

var writeAudit func(ctx context.Context, id string) error

var _ bun.AfterInsertHook = (*audited)(nil)

func (*audited) AfterInsert(ctx context.Context, query *bun.InsertQuery) error {
	return writeAudit(ctx, query.GetModel().Value().(*audited).ID)
}

// bun's model hooks get a context and no transaction, so the transaction has to
// be in the context.
func Example_modelHook() {
	shop := openShop()
	defer shop.close()

	writeAudit = func(ctx context.Context, id string) error {
		_, err := shop.writer.Write(ctx, placed(id))
		return err
	}
	a := shop.adapter()
	err := shop.db.RunInTx(context.Background(), nil, func(ctx context.Context, tx bun.Tx) error {
		ctx, err := a.WithTx(ctx, tx)
		if err != nil {
			return err
		}
		_, err = tx.NewInsert().Model(&audited{ID: "o-1"}).Exec(ctx)
		return err
	})
	fmt.Println("error:", err)
	shop.wait()
	// Unordered output:
	// committed: order.placed o-1
	// error: <nil>
}

// Code that knows neither the adapter nor bun writes with the context alone.
func ExampleAdapter_WithTx() {
	shop := openShop()
	defer shop.close()

	place := func(ctx context.Context, order string) error {
		_, err := shop.writer.Write(ctx, placed(order))
		return err
	}
	a := shop.adapter()
	err := shop.db.RunInTx(context.Background(), nil, func(ctx context.Context, tx bun.Tx) error {
		ctx, err := a.WithTx(ctx, tx)
		if err != nil {
			return err
		}
		return place(ctx, "o-1")
	})
	fmt.Println("error:", err)
	shop.wait()
	// Unordered output:
	// committed: order.placed o-1
	// error: <nil>
}

// Code that does not know bun begins its transactions through the adapter. Code that
// does finds the bun.Tx in the context.
func ExampleAdapter_TxFrom() {
	shop := openShop()
	defer shop.close()

	a := shop.adapter()
	insert := func(ctx context.Context, id string) error {
		var db bun.IDB = shop.db
		if tx, ok := a.TxFrom(ctx); ok {
			db = tx
		}
		_, err := db.NewInsert().Model(&order{ID: id}).Exec(ctx)
		return err
	}
	err := outbox.InTx(context.Background(), a, func(ctx context.Context) error {
		if err := insert(ctx, "o-1"); err != nil {
			return err
		}
		_, err := shop.writer.Write(ctx, placed("o-1"))
		return err
	})
	fmt.Println("error:", err)
	shop.wait()
	// Unordered output:
	// committed: order.placed o-1
	// error: <nil>
}
