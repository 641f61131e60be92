package chooseamode_test

import (
	"database/sql"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

func Example_mode() {
	var db *sql.DB // from sqltx.Open
	store := sqlstore.Postgres()
	ob, err := outbox.New(outbox.Config{
		DB: db, Store: store,
		Mode: outbox.MultiNode{},
	})
	_, _ = ob, err
}

func Example_apiAndWorker() {
	var db *sql.DB               // from sqltx.Open
	var notifier outbox.Notifier // such as a pgnotify.Notifier
	store := sqlstore.Postgres()
	api := outbox.Config{DB: db, Store: store, Notifier: notifier, Mode: outbox.WriterOnly{}}
	worker := outbox.Config{DB: db, Store: store, Notifier: notifier, Mode: outbox.MultiNode{}, Purge: &outbox.PurgeOptions{}}
	_, _ = api, worker
}

func Example_skipRecent() {
	mode := outbox.Ordered{Poll: outbox.PollOptions{
		SkipRecent: 2 * time.Second, // longer than the transactions that write events
	}}
	_ = mode
}
