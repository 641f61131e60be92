package payloads_test

import (
	"context"
	"log/slog"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// deliver starts an outbox with the listener, commits the events in one transaction, and
// closes it, which delivers them.
func deliver(binding outbox.Binding, envs ...outbox.Envelope) *outboxtest.Store {
	ctx := context.Background()
	store := outboxtest.NewStore()
	ob, err := outbox.New(outbox.Config{DB: store.DB(), Store: store, Logger: slog.New(slog.DiscardHandler)})
	check(err)
	check(ob.Register(binding))
	check(ob.Start(ctx))
	check(outbox.InTx(ctx, outboxtest.NewTransactor(store.DB()), func(ctx context.Context) error {
		_, err := ob.Writer().WriteAll(ctx, envs)
		return err
	}))
	check(ob.Close(ctx))
	return store
}
