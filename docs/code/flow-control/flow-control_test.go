package flowcontrol_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

type Invoice struct{ Number int }

var invoiceDue = outbox.NewTopic[Invoice]("invoice", "InvoiceDue")

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func newOutbox(db outbox.DB, store outbox.Store) (*outbox.Outbox, error) {
	return outbox.New(outbox.Config{
		DB: db, Store: store,
		Mode: outbox.MultiNode{Dispatch: outbox.DispatchOptions{
			Rules: map[outbox.EventKind]outbox.Rules{invoiceDue.Kind(): {Concurrency: 2, Rate: 10, Burst: 1}},
		}},
	})
}

// maintain pauses the invoices while fn runs.
func maintain(ctx context.Context, ob *outbox.Outbox, fn func() error) error {
	if err := ob.Pause(ctx, invoiceDue.Kind()); err != nil {
		return err
	}
	return errors.Join(fn(), ob.Resume(ctx, invoiceDue.Kind()))
}

func Example_pause() {
	ctx := context.Background()
	store := outboxtest.NewStore()
	ob, err := newOutbox(store.DB(), store)
	check(err)
	sent := make(chan int)
	check(ob.Register(invoiceDue.Listen(func(_ context.Context, i Invoice, _ outbox.Envelope) error {
		sent <- i.Number
		return nil
	})))
	check(ob.Start(ctx))
	check(maintain(ctx, ob, func() error {
		paused, err := ob.Paused(ctx)
		fmt.Println("paused:", paused[0].Kind)
		return errors.Join(err, outbox.InTx(ctx, outboxtest.NewTransactor(store.DB()), func(ctx context.Context) error {
			_, err := ob.Writer().Write(ctx, invoiceDue.Envelope("7", Invoice{7}))
			return err
		}))
	}))
	fmt.Println("sent:", <-sent)
	check(ob.Close(ctx))
	// Output:
	// paused: invoice/InvoiceDue
	// sent: 7
}

func Example_tenantsInTurn() {
	var db *sql.DB // from sqltx.Open
	store := sqlstore.Postgres(sqlstore.WithTenantIndex())
	ob, err := outbox.New(outbox.Config{
		DB: db, Store: store,
		Mode: outbox.MultiNode{
			Dispatch: outbox.DispatchOptions{ColdCapacity: 100, HotCapacity: 100},
			Claim:    outbox.ClaimOptions{TenantsInTurn: true},
		},
	})
	_, _ = ob, err
}
