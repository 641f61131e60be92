package outboxgorm_test

import (
	"context"
	"fmt"

	"gorm.io/gorm"

	outboxgorm "github.com/outboxkit/outbox-go/adapters/gorm"
	"github.com/outboxkit/outbox-go/outbox"
)

// Customer is a model whose hook writes an event.
type Customer struct{ ID, Name string }

var (
	customerAdded = outbox.NewTopic[Customer]("Customer", "CustomerAdded")
	events        *outboxgorm.Adapter // set when the service starts
)

// AfterCreate runs in the transaction of Create: yours, or the one that GORM begins.
func (c *Customer) AfterCreate(tx *gorm.DB) error {
	_, err := events.Write(tx.Statement.Context, tx, customerAdded.Envelope(c.ID, *c))
	return err
}

// A model's hook writes the event, so that no caller of Create can forget it.
func Example_modelHook() {
	shop := openShop()
	defer shop.close()
	check(shop.db.AutoMigrate(&Customer{}))
	var err error
	events, err = outboxgorm.New(shop.db, shop.writer)
	check(err)

	err = shop.db.WithContext(context.Background()).Create(&Customer{ID: "c-1", Name: "Ada"}).Error
	fmt.Println("error:", err)
	shop.wait()
	// Unordered output:
	// committed: CustomerAdded c-1
	// error: <nil>
}

// A callback writes an event for each model that is created.
func Example_callback() {
	shop := openShop()
	defer shop.close()
	check(shop.db.AutoMigrate(&Customer{}))
	var err error
	events, err = outboxgorm.New(shop.db, shop.writer)
	check(err)
	rowCreated := outbox.NewTopic[string]("Row", "RowCreated")

	// Before the commit: behind it the row would stay when the event cannot be written.
	err = shop.db.Callback().Create().After("gorm:create").Before("gorm:commit_or_rollback_transaction").
		Register("outbox", func(tx *gorm.DB) {
			if tx.Error != nil || tx.Statement.Schema == nil {
				return
			}
			_, err := events.Write(tx.Statement.Context, tx, rowCreated.Envelope(tx.Statement.Table, tx.Statement.Table))
			_ = tx.AddError(err) // rolls the row back
		})
	check(err)

	err = shop.db.Create(&Customer{ID: "c-1", Name: "Ada"}).Error
	fmt.Println("error:", err)
	shop.wait()
	shop.wait()
	// Unordered output:
	// committed: CustomerAdded c-1
	// committed: RowCreated customers
	// error: <nil>
}
