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

func Example_skipRecent() {
	mode := outbox.Ordered{Poll: outbox.PollOptions{
		SkipRecent: 2 * time.Second, // longer than the transactions that write events
	}}
	_ = mode
}
