package pqnotify_test

import (
	"context"
	"log"
	"os"
	"time"

	"github.com/outboxkit/outbox-go/adapters/pqnotify"
	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// Events of all processes are delivered within milliseconds, so the table need not be
// read often.
func ExampleNew() {
	dsn := os.Getenv("DATABASE_URL")
	db, err := sqltx.Open("postgres", dsn) // lib/pq; a notifier imports it
	check(err)
	defer db.Close()
	notifier, err := pqnotify.New(dsn)
	check(err)
	ob, err := outbox.New(outbox.Config{
		DB: db, Store: sqlstore.Postgres(),
		Mode:     outbox.MultiNode{Poll: outbox.PollOptions{Interval: time.Minute}},
		Notifier: notifier,
	})
	check(err)
	check(ob.Run(context.Background()))
}

func check(err error) {
	if err != nil {
		log.Panic(err)
	}
}
