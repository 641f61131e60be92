package outboxgorm_test

import (
	"context"
	"fmt"
	"sync/atomic"

	"gorm.io/driver/sqlite"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	outboxgorm "github.com/outboxkit/outbox-go/adapters/gorm"
	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/outbox"
)

// stocks counts the databases: with an old driver, a database in memory may live for a moment after
// sql.DB.Close.
var stocks atomic.Int32

// openStock opens a database with an outbox.
func openStock() (*gorm.DB, *outbox.Outbox, *outboxgorm.Adapter) {
	pool, err := sqltx.Open("sqlite", fmt.Sprintf("file:/stock%d?vfs=memdb&_pragma=busy_timeout(5000)&_txlock=immediate", stocks.Add(1)))
	check(err)
	db, err := gorm.Open(sqlite.New(sqlite.Config{Conn: pool}), &gorm.Config{Logger: logger.Discard})
	check(err)
	check(db.AutoMigrate(&Product{}))
	store, err := outboxgorm.Store(db)
	check(err)
	check(store.CreateSchema(context.Background(), pool))
	ob, err := outbox.New(outbox.Config{DB: pool, Store: store})
	check(err)
	a, err := outboxgorm.New(db, ob.Writer())
	check(err)
	return db, ob, a
}

// deliver starts the outbox, commits an event, and closes it, which delivers the event.
// Then it prints how many products there are.
func deliver(db *gorm.DB, ob *outbox.Outbox, a *outboxgorm.Adapter) {
	ctx := context.Background()
	check(ob.Start(ctx))
	check(db.Transaction(func(tx *gorm.DB) error {
		_, err := a.Write(ctx, tx, added("p-1"))
		return err
	}))
	check(ob.Close(ctx))
	var n int64
	check(db.Model(&Product{}).Count(&n).Error)
	fmt.Println("products:", n)
	closeStock(db)
}

func closeStock(db *gorm.DB) {
	pool, err := db.DB()
	check(err)
	check(pool.Close())
}

// What the listener writes in its transaction happens exactly once.
func ExampleAdapter_Handle() {
	db, ob, a := openStock()
	index := a.Handle(func(_ context.Context, tx *gorm.DB, env outbox.Envelope) error {
		return tx.Create(&Product{ID: env.AggregateID}).Error
	})
	check(ob.Register(outbox.On("product", "product.added", index)))
	deliver(db, ob, a)
	// Output:
	// products: 1
}

// Complete is for a listener that begins its own transaction, such as after a slow call
// that should not hold one.
func ExampleAdapter_Complete() {
	db, ob, a := openStock()
	index := outbox.ListenerFunc(func(ctx context.Context, env outbox.Envelope) error {
		return db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
			if err := tx.Create(&Product{ID: env.AggregateID}).Error; err != nil {
				return err
			}
			return a.Complete(ctx, tx)
		})
	})
	check(ob.Register(outbox.On("product", "product.added", index)))
	deliver(db, ob, a)
	// Output:
	// products: 1
}

// Code below a middleware finds the transaction of the request.
func ExampleAdapter_TxFrom() {
	db, _, a := openStock()
	defer closeStock(db)
	add := func(ctx context.Context, id string) error {
		tx, ok := a.TxFrom(ctx)
		if !ok {
			tx = db.WithContext(ctx)
		}
		return tx.Create(&Product{ID: id}).Error
	}
	fmt.Println(outbox.InTx(context.Background(), a, func(ctx context.Context) error {
		return add(ctx, "p-1")
	}))
	// Output:
	// <nil>
}

// WriteAll writes all events or none, in one statement.
func ExampleAdapter_WriteAll() {
	db, _, a := openStock()
	defer closeStock(db)
	err := db.Transaction(func(tx *gorm.DB) error {
		ids, err := a.WriteAll(context.Background(), tx, []outbox.Envelope{added("p-1"), added("p-2")})
		fmt.Println(len(ids), "events")
		return err
	})
	fmt.Println(err)
	// Output:
	// 2 events
	// <nil>
}

// The pool that GORM has opened becomes a followed one.
func ExamplePlugin() {
	db, err := gorm.Open(sqlite.Open("shop.db"), outboxgorm.Plugin{})
	check(err)
	pool, err := db.DB() // the followed one
	check(err)
	store, err := outboxgorm.Store(db)
	check(err)
	ob, err := outbox.New(outbox.Config{DB: pool, Store: store})
	check(err)
	a, err := outboxgorm.New(db, ob.Writer())
	check(err)
	check(db.Transaction(func(tx *gorm.DB) error {
		_, err := a.Write(context.Background(), tx, added("p-1"))
		return err
	}))
}

// The store for the database that a gorm.DB speaks to.
func ExampleStore() {
	db, _, _ := openStock()
	defer closeStock(db)
	store, err := outboxgorm.Store(db)
	check(err)
	fmt.Println(store.Dialect(), store.Table())
	// Output:
	// sqlite outbox_event
}
