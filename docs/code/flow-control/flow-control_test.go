package flowcontrol_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

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

func newFleetwide(db outbox.DB, store outbox.Store) (*outbox.Outbox, error) {
	return outbox.New(outbox.Config{
		DB: db, Store: store,
		Mode: outbox.MultiNode{Dispatch: outbox.DispatchOptions{
			Rules: map[outbox.EventKind]outbox.Rules{invoiceDue.Kind(): {Concurrency: 20, Rate: 100, Fleetwide: true}},
		}},
	})
}

func Example_fleetwide() {
	ctx := context.Background()
	store := outboxtest.NewStore()
	ob, err := newFleetwide(store.DB(), store)
	check(err)
	sent := make(chan int)
	register(ob, func(_ context.Context, i Invoice) error {
		sent <- i.Number
		return nil
	})
	check(ob.Start(ctx))
	check(outbox.InTx(ctx, outboxtest.NewTransactor(store.DB()), func(ctx context.Context) error {
		_, err := ob.Writer().Write(ctx, invoiceDue.Envelope("7", Invoice{7}))
		return err
	}))
	fmt.Println("sent:", <-sent)
	check(ob.Close(ctx))
	// Output:
	// sent: 7
}

// maintain pauses the invoices while fn runs, for an hour at most.
func maintain(ctx context.Context, ob *outbox.Outbox, fn func() error) error {
	pause := outbox.Pause{Kind: invoiceDue.Kind(), Until: time.Now().Add(time.Hour), Reason: "provider down, ticket 4711", By: "ann"}
	if err := ob.Pause(ctx, pause); err != nil {
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
	register(ob, func(_ context.Context, i Invoice) error {
		sent <- i.Number
		return nil
	})
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

var errUnavailable = errors.New("503 service unavailable")

func register(ob *outbox.Outbox, send func(ctx context.Context, i Invoice) error) {
	err := ob.Register(invoiceDue.Listen(func(ctx context.Context, i Invoice, _ outbox.Envelope) error {
		err := send(ctx, i)
		if errors.Is(err, errUnavailable) {
			return outbox.PauseFor(5*time.Minute, err)
		}
		return err
	}))
	check(err)
}

func Example_pauseFor() {
	ctx := context.Background()
	store := outboxtest.NewStore()
	ob, err := newOutbox(store.DB(), store)
	check(err)
	asked := make(chan int, 100)
	register(ob, func(_ context.Context, i Invoice) error {
		asked <- i.Number
		return errUnavailable
	})
	check(ob.Start(ctx))
	check(outbox.InTx(ctx, outboxtest.NewTransactor(store.DB()), func(ctx context.Context) error {
		_, err := ob.Writer().Write(ctx, invoiceDue.Envelope("7", Invoice{7}))
		return err
	}))
	fmt.Println("asked:", <-asked)
	paused := []outbox.Pause{}
	for len(paused) == 0 { // until the pause is stored
		paused, err = ob.Paused(ctx)
		check(err)
	}
	fmt.Println("paused:", paused[0].Kind, "because of", paused[0].Reason)
	check(ob.Close(ctx))
	// Output:
	// asked: 7
	// paused: invoice/InvoiceDue because of 503 service unavailable
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
