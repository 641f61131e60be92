package outbox_test

import (
	"context"
	"fmt"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// A rule bounds one kind of event in this process; a pause stops it in all processes.
func ExampleOutbox_Pause() {
	ctx := context.Background()
	invoiceDue := outbox.NewTopic[int]("invoice", "InvoiceDue")
	store := outboxtest.NewStore()
	ob, err := outbox.New(outbox.Config{DB: store.DB(), Store: store, Logger: quiet, Mode: outbox.MultiNode{
		Dispatch: outbox.DispatchOptions{Rules: map[outbox.EventKind]outbox.Rules{
			invoiceDue.Kind(): {Concurrency: 2, Rate: 100, Burst: 1},
		}},
	}})
	check(err)
	sent := make(chan int)
	check(ob.Register(invoiceDue.Listen(func(_ context.Context, number int, _ outbox.Envelope) error {
		sent <- number
		return nil
	})))
	check(ob.Start(ctx))
	check(ob.Pause(ctx, outbox.Pause{Kind: invoiceDue.Kind()}))

	scope := outboxtest.NewScope(store.DB())
	_, err = ob.Writer().WriteScope(ctx, scope, []outbox.Envelope{invoiceDue.Envelope("7", 7)})
	check(err)
	check(scope.Commit())
	paused, err := ob.Paused(ctx)
	check(err)
	fmt.Println("paused:", paused[0].Kind)

	check(ob.Resume(ctx, invoiceDue.Kind()))
	fmt.Println("sent:", <-sent)
	check(ob.Close(ctx))
	// Output:
	// paused: invoice/InvoiceDue
	// sent: 7
}
