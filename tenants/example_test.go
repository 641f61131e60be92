package tenants_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	_ "modernc.org/sqlite"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
	"github.com/outboxkit/outbox-go/tenants"
)

type invoice struct{ Number string }

var invoiceSent = outbox.NewTopic[invoice]("Invoice", "InvoiceSent")

// Each tenant has a SQLite file. The listeners of all tenants run on four workers.
func Example() {
	if err := books(); err != nil {
		fmt.Println(err)
	}
	// Output:
	// acme: invoice 1 was sent
	// globex: invoice 1 was sent
	// tenants: "acme": there is no such tenant
}

func books() (err error) {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "books")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	workers, sent := outbox.NewSharedWorkers(4), make(chan string)

	open := func(ctx context.Context, tenant string) (opened tenants.Tenant[*sqltx.Adapter], err error) {
		db, err := sqltx.Open("sqlite", "file:"+filepath.Join(dir, tenant+".db")+"?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_txlock=immediate")
		if err != nil {
			return opened, err
		}
		defer func() {
			if err != nil {
				err = errors.Join(err, db.Close())
			}
		}()
		store := sqlstore.SQLite()
		if err = store.CreateSchema(ctx, db); err != nil {
			return opened, err
		}
		ob, err := outbox.New(outbox.Config{
			DB: db, Store: store, Logger: slog.New(slog.DiscardHandler),
			Mode: outbox.SingleNode{Dispatch: outbox.DispatchOptions{SharedWorkers: workers}},
		})
		if err != nil {
			return opened, err
		}
		tx, err := sqltx.New(db, ob.Writer())
		if err != nil {
			return opened, err
		}
		err = ob.Register(invoiceSent.Listen(func(_ context.Context, i invoice, _ outbox.Envelope) error {
			sent <- fmt.Sprintf("%s: invoice %s was sent", tenant, i.Number)
			return nil
		}))
		return tenants.Tenant[*sqltx.Adapter]{Outbox: ob, Value: tx, Close: db.Close}, err
	}

	m, err := tenants.New(tenants.Config[*sqltx.Adapter]{Open: open})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close(ctx)) }()
	if err := m.Set(ctx, "acme", "globex"); err != nil {
		return err
	}
	send := func(tenant string) error {
		return m.Use(ctx, tenant, func(tx *sqltx.Adapter) error {
			return tx.RunInTx(ctx, nil, func(ctx context.Context, sqlTx *sql.Tx) error {
				_, err := tx.Write(ctx, sqlTx, invoiceSent.Envelope("1", invoice{Number: "1"}))
				return err
			})
		})
	}
	for _, tenant := range []string{"acme", "globex"} {
		if err := send(tenant); err != nil {
			return err
		}
		fmt.Println(<-sent)
	}
	if err := m.Set(ctx, "globex"); err != nil { // acme has left
		return err
	}
	fmt.Println(send("acme"))
	return nil
}
