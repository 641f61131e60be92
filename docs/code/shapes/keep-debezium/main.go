// The program of docs/shapes/keep-debezium.md: a service whose events Debezium reads from the log.
package main

import (
	"context"
	"database/sql"
	"errors"
	"net"
	"time"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/docs/code/shapes/service"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// serve writes events. Debezium reads them from the database's log.
func serve(ctx context.Context, db *sql.DB, l net.Listener) error {
	ob, err := outbox.New(outbox.Config{
		DB: db, Store: sqlstore.Postgres(sqlstore.WithAgeIndex()),
		Mode:  outbox.WriterOnly{},
		Purge: &outbox.PurgeOptions{Retention: 24 * time.Hour, Undelivered: true},
	})
	if err != nil {
		return err
	}
	a, err := sqltx.New(db, ob.Writer())
	if err := errors.Join(err, ob.Start(ctx)); err != nil {
		return err
	}
	err = service.Serve(ctx, l, service.Orders(a))
	return errors.Join(err, ob.Close(context.WithoutCancel(ctx)))
}

func main() {
	service.Main(func(ctx context.Context, db *sql.DB) error {
		if err := sqlstore.Postgres(sqlstore.WithAgeIndex()).CreateSchema(ctx, db); err != nil {
			return err
		}
		return serve(ctx, db, service.Listen(ctx, "8080"))
	})
}
