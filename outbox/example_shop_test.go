package outbox_test

import (
	"context"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// What the examples share: the event of a shop, and an outbox over a store in memory.

type Order struct {
	ID    string `json:"id"`
	Total int    `json:"total"`
}

var OrderPlaced = outbox.NewTopic[Order]("Order", "OrderPlaced")

// newShop returns an outbox that is not started, and its store.
func newShop(bindings ...outbox.Binding) (*outbox.Outbox, *outboxtest.Store) {
	store := outboxtest.NewStore()
	ob, err := outbox.New(outbox.Config{DB: store.DB(), Store: store, Logger: quiet})
	check(err)
	check(ob.Register(bindings...))
	return ob, store
}

// commit writes the events in one transaction and commits it.
func commit(ob *outbox.Outbox, envs ...outbox.Envelope) {
	begin := outboxtest.NewTransactor(ob.Writer().Source()) // or an adapter, such as sqltx
	check(outbox.InTx(context.Background(), begin, func(ctx context.Context) error {
		_, err := ob.Writer().WriteAll(ctx, envs)
		return err
	}))
}

// deliverAll starts the outbox, commits the events, and closes it, which delivers them.
func deliverAll(ob *outbox.Outbox, envs ...outbox.Envelope) {
	check(ob.Start(context.Background()))
	commit(ob, envs...)
	check(ob.Close(context.Background()))
}
