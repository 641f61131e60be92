package faultrun

import (
	"context"

	"gorm.io/driver/mysql"
	"gorm.io/driver/postgres"
	"gorm.io/driver/sqlite"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	outboxgorm "github.com/outboxkit/outbox-go/adapters/gorm"
	"github.com/outboxkit/outbox-go/inbox"
	"github.com/outboxkit/outbox-go/outbox"
)

// viaGORM writes in transactions of GORM.
type viaGORM struct {
	db      *gorm.DB
	adapter *outboxgorm.Adapter
}

func newViaGORM(n *node) viaGORM {
	var dialector gorm.Dialector
	switch dialect(n.Driver) {
	case inbox.MySQL:
		dialector = mysql.New(mysql.Config{Conn: n.pools.db, SkipInitializeWithVersion: true})
	case inbox.SQLite:
		dialector = sqlite.New(sqlite.Config{Conn: n.pools.db})
	default:
		dialector = postgres.New(postgres.Config{Conn: n.pools.db})
	}
	var db *gorm.DB
	again(context.Background(), func() (err error) {
		db, err = gorm.Open(dialector, &gorm.Config{Logger: logger.Discard, DisableAutomaticPing: true})
		return err
	})
	return viaGORM{db, must(outboxgorm.New(db, n.ob.Writer()))}
}

type gormKey struct{}

func (v viaGORM) InTx(ctx context.Context, fn func(ctx context.Context, tx transaction) error) error {
	db := v.db
	if outer, ok := ctx.Value(gormKey{}).(*gorm.DB); ok {
		db = outer
	}
	return db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		return fn(context.WithValue(ctx, gormKey{}, tx), gormTx{v.adapter, tx})
	})
}

type gormTx struct {
	adapter *outboxgorm.Adapter
	tx      *gorm.DB
}

func (t gormTx) Exec(ctx context.Context, query string) error {
	return t.tx.WithContext(ctx).Exec(query).Error
}

func (t gormTx) Number(ctx context.Context, query string) (number int, err error) {
	return number, t.tx.WithContext(ctx).Raw(query).Row().Scan(&number)
}

func (t gormTx) Write(ctx context.Context, envs []outbox.Envelope) ([]string, error) {
	return t.adapter.WriteAll(ctx, t.tx, envs)
}

func (t gormTx) Change(ctx context.Context, which outbox.Waiting, c outbox.Change) (outbox.TakenBack, error) {
	return takeBack[*gorm.DB](ctx, t.adapter, t.tx, which, c)
}
