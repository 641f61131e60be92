package outboxgorm_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"gorm.io/driver/sqlite"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	outboxgorm "github.com/outboxkit/outbox-go/adapters/gorm"
	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/outbox"
)

// shop is a database with an outbox whose events the examples print.
type shop struct {
	db     *gorm.DB
	writer *outbox.Writer
	dir    string
	hooks  chan struct{}
}

func openShop() *shop {
	dir, err := os.MkdirTemp("", "outboxgorm")
	check(err)
	pool, err := sqltx.Open("sqlite", "file:"+filepath.Join(dir, "shop.db"))
	check(err)
	db, err := gorm.Open(sqlite.New(sqlite.Config{Conn: pool}), &gorm.Config{Logger: logger.Discard})
	check(err)
	check(db.AutoMigrate(&Product{}))
	store, err := outboxgorm.Store(db)
	check(err)
	check(store.CreateSchema(context.Background(), pool))
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

// wait waits for a hook: they run soon after the transaction has ended.
func (s *shop) wait() { <-s.hooks }

func (s *shop) close() {
	pool, err := s.db.DB()
	check(err)
	check(pool.Close())
	check(os.RemoveAll(s.dir))
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// Product is a model.
type Product struct {
	ID      string
	publish func(tx *gorm.DB, p *Product) error
}

// AfterCreate runs in the transaction that GORM begins around Create.
func (p *Product) AfterCreate(tx *gorm.DB) error {
	if p.publish == nil {
		return nil
	}
	return p.publish(tx, p)
}

func added(product string) outbox.Envelope {
	return outbox.Envelope{
		EventType: "product.added", AggregateType: "product", AggregateID: product,
		Payload: outbox.JSON(map[string]string{"product": product}),
	}
}

func ExampleAdapter_Write() {
	shop := openShop()
	defer shop.close()
	ctx := context.Background()

	a, err := outboxgorm.New(shop.db, shop.writer)
	check(err)
	err = shop.db.Transaction(func(tx *gorm.DB) error {
		if err := tx.Create(&Product{ID: "p-1"}).Error; err != nil {
			return err
		}
		_, err := a.Write(ctx, tx, added("p-1"))
		return err
	})
	fmt.Println("error:", err)
	shop.wait()
	// Unordered output:
	// committed: product.added p-1
	// error: <nil>
}

func ExampleAdapter_Write_begin() {
	shop := openShop()
	defer shop.close()
	ctx := context.Background()

	a, err := outboxgorm.New(shop.db, shop.writer)
	check(err)
	tx := shop.db.Begin()
	check(tx.Error)
	defer tx.Rollback() // after Commit it does nothing
	_, err = a.Write(ctx, tx, added("p-1"))
	check(err)
	fmt.Println("error:", tx.Commit().Error)
	shop.wait()
	// Unordered output:
	// committed: product.added p-1
	// error: <nil>
}

func ExampleAdapter_Write_savepoint() {
	shop := openShop()
	defer shop.close()
	ctx := context.Background()

	a, err := outboxgorm.New(shop.db, shop.writer)
	check(err)
	err = shop.db.Transaction(func(tx *gorm.DB) error {
		if _, err := a.Write(ctx, tx, added("p-1")); err != nil {
			return err
		}
		err := tx.Transaction(func(tx *gorm.DB) error {
			if _, err := a.Write(ctx, tx, added("p-2")); err != nil {
				return err
			}
			return errors.New("no such supplier")
		})
		fmt.Println("the second product:", err)
		return nil
	})
	fmt.Println("error:", err)
	shop.wait()
	shop.wait()
	// Unordered output:
	// rolled back: product.added p-2
	// the second product: no such supplier
	// committed: product.added p-1
	// error: <nil>
}

// The transaction is the one that GORM begins around Create by itself.
func ExampleAdapter_Write_modelHook() {
	shop := openShop()
	defer shop.close()

	a, err := outboxgorm.New(shop.db, shop.writer)
	check(err)
	publish := func(tx *gorm.DB, p *Product) error { // called by AfterCreate
		_, err := a.Write(tx.Statement.Context, tx, added(p.ID))
		return err
	}
	err = shop.db.Create(&Product{ID: "p-1", publish: publish}).Error
	fmt.Println("error:", err)
	shop.wait()
	// Unordered output:
	// committed: product.added p-1
	// error: <nil>
}

// Code that knows neither GORM nor the adapter writes with the context alone.
func ExampleAdapter_WithTx() {
	shop := openShop()
	defer shop.close()
	ctx := context.Background()

	add := func(ctx context.Context, product string) error {
		_, err := shop.writer.Write(ctx, added(product))
		return err
	}
	a, err := outboxgorm.New(shop.db, shop.writer)
	check(err)
	err = shop.db.Transaction(func(tx *gorm.DB) error {
		ctx, err := a.WithTx(ctx, tx)
		if err != nil {
			return err
		}
		return add(ctx, "p-1")
	})
	fmt.Println("error:", err)
	fmt.Println("outside of a transaction:", errors.Is(add(ctx, "p-2"), outbox.ErrNoTransaction))
	shop.wait()
	// Unordered output:
	// committed: product.added p-1
	// error: <nil>
	// outside of a transaction: true
}

func ExampleAdapter_Begin() {
	shop := openShop()
	defer shop.close()

	a, err := outboxgorm.New(shop.db, shop.writer)
	check(err)
	err = outbox.InTx(context.Background(), a, func(ctx context.Context) error {
		if tx, ok := a.TxFrom(ctx); ok {
			check(tx.Create(&Product{ID: "p-1"}).Error)
		}
		_, err := shop.writer.Write(ctx, added("p-1"))
		return err
	})
	fmt.Println("error:", err)
	shop.wait()
	// Unordered output:
	// committed: product.added p-1
	// error: <nil>
}
