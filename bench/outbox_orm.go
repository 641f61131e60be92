package main

import (
	"context"
	"database/sql"

	"github.com/uptrace/bun"
	"gorm.io/gorm"

	outboxbun "github.com/outboxkit/outbox-go/adapters/bun"
	outboxgorm "github.com/outboxkit/outbox-go/adapters/gorm"
	"github.com/outboxkit/outbox-go/outbox"
)

// outboxORMContenders are this library through the other adapters. Another adapter needs a function
// such as viaBun, and a line here.
func outboxORMContenders() []contender {
	via := func(name, against string, write func(*database, *sql.DB, *outbox.Writer) (outboxWrite, error)) contender {
		kind := outboxKind{mode: outbox.SingleNode{}, write: write}
		return contender{name: name, against: against, on: everywhere, works: []string{"write", "many"}, open: kind.open}
	}
	return []contender{
		via("outbox, bun", bunByHand, viaBun),
		via("outbox, GORM", gormByHand, viaGORM),
	}
}

// order is the business row of the ORMs.
type order struct {
	bun.BaseModel `bun:"table:orders" gorm:"-"`

	ID   string `bun:",pk" gorm:"primaryKey"`
	Item string
}

func viaBun(db *database, pool *sql.DB, w *outbox.Writer) (outboxWrite, error) {
	orm := bun.NewDB(pool, bunDialect(db.kind))
	a, err := outboxbun.New(orm, w)
	return func(ctx context.Context, id string, envs []outbox.Envelope) error {
		return orm.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
			if _, err := tx.NewInsert().Model(&order{ID: id, Item: "tea"}).Exec(ctx); err != nil {
				return err
			}
			_, err := a.WriteAll(ctx, tx, envs)
			return err
		})
	}, err
}

func viaGORM(db *database, pool *sql.DB, w *outbox.Writer) (outboxWrite, error) {
	orm, err := openGORM(db.kind, pool)
	if err != nil {
		return nil, err
	}
	a, err := outboxgorm.New(orm, w)
	return func(ctx context.Context, id string, envs []outbox.Envelope) error {
		return orm.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
			if err := tx.Create(&order{ID: id, Item: "tea"}).Error; err != nil {
				return err
			}
			_, err := a.WriteAll(ctx, tx, envs)
			return err
		})
	}, err
}
