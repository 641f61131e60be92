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

// newBreakingOutbox pauses the invoices after five failures in a row.
func newBreakingOutbox(db outbox.DB, store outbox.Store) (*outbox.Outbox, error) {
	return outbox.New(outbox.Config{
		DB: db, Store: store,
		Mode: outbox.MultiNode{Dispatch: outbox.DispatchOptions{
			Rules: map[outbox.EventKind]outbox.Rules{invoiceDue.Kind(): {Breaker: outbox.Breaker{Failures: 5, Pause: time.Minute}}},
		}},
	})
}

type Webhook struct{ URL, Body string }

var webhook = outbox.NewTopic[Webhook]("endpoint", "Webhook") // the aggregate id is the endpoint

func registerWebhooks(ob *outbox.Outbox, post func(ctx context.Context, w Webhook) error) error {
	return ob.Register(webhook.Listen(func(ctx context.Context, w Webhook, _ outbox.Envelope) error {
		err := post(ctx, w)
		if errors.Is(err, errUnavailable) {
			return outbox.PauseKeyFor(5*time.Minute, err)
		}
		return err
	}, outbox.Rules{
		KeyConcurrency: 2,  // calls of an endpoint at once
		KeyRate:        10, // calls of an endpoint in a second
		Breaker:        outbox.Breaker{Failures: 10, PerKey: true},
	}))
}

func Example_pauseKeyFor() {
	ctx := context.Background()
	store := outboxtest.NewStore()
	ob, err := newBreakingOutbox(store.DB(), store)
	check(err)
	register(ob, func(context.Context, Invoice) error { return nil })
	posted := make(chan string, 100)
	check(registerWebhooks(ob, func(_ context.Context, w Webhook) error {
		if w.URL == "https://down.example" {
			return errUnavailable
		}
		posted <- w.URL
		return nil
	}))
	check(ob.Start(ctx))
	check(outbox.InTx(ctx, outboxtest.NewTransactor(store.DB()), func(ctx context.Context) error {
		_, err := ob.Writer().WriteAll(ctx, []outbox.Envelope{
			webhook.Envelope("7", Webhook{URL: "https://down.example"}),
			webhook.Envelope("8", Webhook{URL: "https://up.example"}),
		})
		return err
	}))
	fmt.Println("posted:", <-posted)
	var st outbox.Stats
	for len(st.Paused) == 0 { // until the listener has returned
		st, err = ob.Stats(ctx)
		check(err)
	}
	fmt.Println("paused:", st.Paused[0].Kind, st.Paused[0].AggregateID, "because of", st.Paused[0].Reason)
	check(ob.Close(ctx))
	// Output:
	// posted: https://up.example
	// paused: endpoint/Webhook 7 because of 503 service unavailable
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
