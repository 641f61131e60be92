package pgnotify_test

import (
	"context"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/outboxkit/outbox-go/adapters/pgnotify"
	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// Events of all processes are delivered within milliseconds, so the table need not be
// read often.
func ExampleNew() {
	db, err := sqltx.Open("pgx", os.Getenv("DATABASE_URL"))
	check(err)
	defer db.Close()
	notifier, err := pgnotify.New(db)
	check(err)
	ob, err := outbox.New(outbox.Config{
		DB: db, Store: sqlstore.Postgres(),
		Mode:     outbox.MultiNode{Poll: outbox.PollOptions{Interval: time.Minute}},
		Notifier: notifier,
	})
	check(err)
	check(ob.Run(context.Background()))
}

// With a pool of pgx, without database/sql.
func ExampleFromPool() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL")) // outboxpgx.Open makes a followed pool
	check(err)
	defer pool.Close()
	notifier, err := pgnotify.FromPool(pool)
	check(err)
	ob, err := outbox.New(outbox.Config{DB: stdlib.OpenDBFromPool(pool), Store: sqlstore.Postgres(), Notifier: notifier})
	check(err)
	check(ob.Run(ctx))
}

// The pool goes through PgBouncer, and the notifier past it.
func ExampleFromDSN() {
	db, err := sqltx.Open("pgx", os.Getenv("PGBOUNCER_URL"))
	check(err)
	defer db.Close()
	notifier, err := pgnotify.FromDSN(os.Getenv("DATABASE_URL"))
	check(err)
	ob, err := outbox.New(outbox.Config{DB: db, Store: sqlstore.Postgres(), Notifier: notifier})
	check(err)
	check(ob.Run(context.Background()))
}
