package main

import (
	"context"
	"database/sql"
	"strconv"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/mysqldialect"
	"github.com/uptrace/bun/dialect/pgdialect"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	"github.com/uptrace/bun/schema"
	"gorm.io/driver/mysql"
	"gorm.io/driver/postgres"
	"gorm.io/driver/sqlite"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
)

const (
	bunByHand  = "by hand, bun"
	gormByHand = "by hand, GORM"
)

// handContenders insert rows in the outbox's own table through an ORM, as an
// application without a library would. The bare statements are the same for
// database/sql.
func handContenders() []contender {
	works := []string{"write", "many"}
	return []contender{
		{name: bunByHand, on: everywhere, works: works, open: openHand(writeBun[time.Time], writeBun[int64])},
		{name: gormByHand, on: everywhere, works: works, open: openHand(writeGORM[time.Time], writeGORM[int64])},
	}
}

// eventRow is a row of the outbox's table. T is how the database keeps a time.
type eventRow[T time.Time | int64] struct {
	bun.BaseModel `bun:"table:outbox_event" gorm:"-"`

	EventID       string `bun:",pk" gorm:"primaryKey"`
	EventType     string
	AggregateType string
	AggregateID   string
	TenantID      *string
	Payload       string
	Headers       *string
	Status        int
	Attempts      int
	AvailableAt   T
	CreatedAt     T `gorm:"autoCreateTime:false"`
}

// TableName is for GORM.
func (eventRow[T]) TableName() string { return "outbox_event" }

func eventRows[T time.Time | int64](kind testdb.Kind, first, n int) []eventRow[T] {
	now := storedTime(kind, time.Now()).(T)
	rows := make([]eventRow[T], n)
	for i := range rows {
		rows[i] = eventRow[T]{
			EventID: eventID(first + i), EventType: eventType, AggregateType: aggregateType, AggregateID: aggregateID,
			Payload: payload(first + i), AvailableAt: now, CreatedAt: now,
		}
	}
	return rows
}

type handWrite func(ctx context.Context, first, n int) error

// handSystem writes by an ORM; the rest is done by bare statements.
type handSystem struct {
	*bareSystem

	write handWrite
}

func openHand(others, sqlite func(testdb.Kind, *sql.DB) (handWrite, error)) func(context.Context, *database) (system, error) {
	return func(ctx context.Context, db *database) (system, error) {
		pool, err := openWithTable(ctx, db)
		if err != nil {
			return nil, err
		}
		with := others
		if db.kind == testdb.SQLite {
			with = sqlite
		}
		write, err := with(db.kind, pool)
		return &handSystem{&bareSystem{db: db, pool: pool, deliver: bareMark}, write}, err
	}
}

func (s *handSystem) Write(ctx context.Context, first, n int) error {
	err := s.write(ctx, first, n)
	if err == nil && s.written != nil {
		s.written <- first
	}
	return err
}

func writeBun[T time.Time | int64](kind testdb.Kind, pool *sql.DB) (handWrite, error) {
	orm := bun.NewDB(pool, bunDialect(kind))
	return func(ctx context.Context, first, n int) error {
		rows := eventRows[T](kind, first, n)
		return orm.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
			if _, err := tx.NewInsert().Model(&order{ID: strconv.Itoa(first), Item: "tea"}).Exec(ctx); err != nil {
				return err
			}
			_, err := tx.NewInsert().Model(&rows).Exec(ctx)
			return err
		})
	}, nil
}

func writeGORM[T time.Time | int64](kind testdb.Kind, pool *sql.DB) (handWrite, error) {
	orm, err := openGORM(kind, pool)
	return func(ctx context.Context, first, n int) error {
		rows := eventRows[T](kind, first, n)
		return orm.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
			if err := tx.Create(&order{ID: strconv.Itoa(first), Item: "tea"}).Error; err != nil {
				return err
			}
			return tx.Create(&rows).Error
		})
	}, err
}

func bunDialect(kind testdb.Kind) schema.Dialect {
	switch kind {
	case testdb.Postgres:
		return pgdialect.New()
	case testdb.MySQL:
		return mysqldialect.New()
	default:
		return sqlitedialect.New()
	}
}

func openGORM(kind testdb.Kind, pool *sql.DB) (*gorm.DB, error) {
	var dialector gorm.Dialector
	switch kind {
	case testdb.Postgres:
		dialector = postgres.New(postgres.Config{Conn: pool})
	case testdb.MySQL:
		dialector = mysql.New(mysql.Config{Conn: pool})
	default:
		dialector = sqlite.New(sqlite.Config{Conn: pool})
	}
	return gorm.Open(dialector, &gorm.Config{Logger: logger.Discard})
}
