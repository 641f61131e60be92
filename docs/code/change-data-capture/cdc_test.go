// Package cdc_test holds the Go code of docs/how-to/change-data-capture.md that is in no
// sample.
package cdc_test

import (
	"database/sql"
	"fmt"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// newWriter makes an outbox that only writes.
func newWriter(db *sql.DB) (*outbox.Outbox, error) {
	return outbox.New(outbox.Config{
		DB: db, Store: sqlstore.Postgres(sqlstore.WithAgeIndex()),
		Mode:  outbox.WriterOnly{},
		Purge: &outbox.PurgeOptions{Retention: 24 * time.Hour},
	})
}

func Example() {
	_, err := newWriter(new(sql.DB))
	fmt.Println(err)
	// Output:
	// <nil>
}
