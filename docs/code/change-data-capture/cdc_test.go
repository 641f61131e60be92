// Package cdc_test holds the Go code of docs/how-to/change-data-capture.md that is in no
// sample.
package cdc_test

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
	"github.com/outboxkit/outbox-go/relay"
	"github.com/outboxkit/outbox-go/relay/binlog"
	"github.com/outboxkit/outbox-go/relay/cdc"
)

// newWriter makes an outbox that only writes.
func newWriter(db *sql.DB) (*outbox.Outbox, error) {
	return outbox.New(outbox.Config{
		DB: db, Store: sqlstore.Postgres(sqlstore.WithAgeIndex()),
		Mode:  outbox.WriterOnly{},
		Purge: &outbox.PurgeOptions{Retention: 24 * time.Hour, Undelivered: true},
	})
}

// keepDead stores dead events in a table of the service.
func keepDead(db *sql.DB) func(ctx context.Context, env outbox.Envelope, err error) error {
	return func(ctx context.Context, env outbox.Envelope, err error) error {
		_, failed := db.ExecContext(ctx, "INSERT INTO dead_event (event_id, payload, reason) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
			env.EventID, env.Payload.Bytes(), err.Error())
		return failed
	}
}

// watch reports how much log the server keeps for the reader.
func watch(ctx context.Context, reader *cdc.Reader, gauge func(name string, bytes int64)) error {
	lag, err := reader.Lag(ctx)
	if err != nil {
		return err // also if the slot is gone
	}
	gauge("outbox_cdc_behind_bytes", lag.Behind)
	gauge("outbox_cdc_kept_bytes", lag.Kept)
	return nil
}

// newReader makes a reader of the log of MySQL or MariaDB.
func newReader(dsn string, r *relay.Relay) (*binlog.Reader, error) {
	return binlog.New(binlog.Config{DSN: dsn, Publish: r.Publish})
}

// watchBinlog reports how old the reader's position is.
func watchBinlog(ctx context.Context, reader *binlog.Reader, gauge func(name string, seconds float64)) error {
	lag, err := reader.Lag(ctx)
	if err != nil {
		return err // also if the position is lost
	}
	gauge("outbox_cdc_behind_seconds", lag.Behind.Seconds())
	gauge("outbox_cdc_kept_seconds", lag.Kept.Seconds())
	return nil
}

func Example() {
	_, err := newWriter(new(sql.DB))
	fmt.Println(err)
	reader, err := cdc.New(cdc.Config{
		Source:  cdc.Postgres{DSN: "postgres://127.0.0.1:1/shop"}, // nothing listens there
		Publish: cdc.ToListener(outbox.ListenerFunc(func(context.Context, outbox.Envelope) error { return nil })),
		Dead:    keepDead(new(sql.DB)),
	})
	fmt.Println(err)
	fmt.Println(watch(context.Background(), reader, nil) != nil)
	other, err := newReader("reader@tcp(127.0.0.1:1)/shop", &relay.Relay{}) // nothing listens there either
	fmt.Println(err)
	fmt.Println(watchBinlog(context.Background(), other, nil) != nil)
	// Output:
	// <nil>
	// <nil>
	// true
	// <nil>
	// true
}
