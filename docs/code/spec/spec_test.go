// Package spec_test holds the code of docs/SPEC.md.
package spec_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

type orderRow struct{ ID, Item string }

var (
	orderPlaced = outbox.NewTopic[orderRow]("Order", "OrderPlaced")
	store       = outboxtest.NewStore()
	db          = store.DB()
	registry    = outbox.NewRegistry()
)

func onOrderPlaced(_ context.Context, o orderRow, _ outbox.Envelope) error {
	fmt.Println("mail for", o.Item)
	return nil
}

// OrderPlaced is the type of an event.
const OrderPlaced outbox.EventType = "OrderPlaced"

func Example_construction() {
	order := orderRow{"o-1", "tea"}
	plain := outbox.Envelope{
		EventType: OrderPlaced, AggregateType: "Order", AggregateID: "o-1",
		Payload: outbox.JSON(order),
	}
	typed := orderPlaced.Envelope("o-1", order) // a topic fills the types
	later := outbox.Envelope{
		EventType: "ReminderDue", DeliverAfter: 24 * time.Hour,
		Payload: outbox.RawJSON(`{"id":1}`),
	}
	for _, env := range []outbox.Envelope{plain, typed, later} {
		fmt.Println(env.EventType, env.Payload, env.Validate())
	}
	// Output:
	// OrderPlaced {"ID":"o-1","Item":"tea"} <nil>
	// OrderPlaced {"ID":"o-1","Item":"tea"} <nil>
	// ReminderDue {"id":1} <nil>
}

func composite() error {
	ob, err := outbox.New(outbox.Config{DB: db, Store: store, Mode: outbox.SingleNode{
		Dispatch: outbox.DispatchOptions{Workers: 8, HotCapacity: 2000},
	}})
	if err != nil {
		return err
	}
	return ob.Close(context.Background())
}

func parts() error {
	d, err := outbox.NewDispatcher(outbox.DispatcherConfig{DB: db, Store: store, Registry: registry})
	if err != nil {
		return err
	}
	p, err := outbox.NewPoller(outbox.PollerConfig{DB: db, Store: store, Handler: d})
	if err != nil {
		return err
	}
	w, err := outbox.NewWriter(outbox.WriterConfig{Store: store, Source: db, Dispatcher: d, Poller: p})
	if err == nil && w == nil {
		return errors.New("there is no writer")
	}
	return errors.Join(err, p.Close(context.Background()), d.Close(context.Background()))
}

func api(ctx context.Context) error {
	ob, err := outbox.New(outbox.Config{DB: db, Store: store, Mode: outbox.MultiNode{}})
	if err != nil {
		return err
	}
	if err := ob.Register(orderPlaced.Listen(onOrderPlaced)); err != nil {
		return err
	}
	if err := ob.Start(ctx); err != nil {
		return err
	}
	defer ob.Close(ctx)
	return nil
}

func TestTheCodeOfTheSpecificationRuns(t *testing.T) {
	t.Parallel()
	require.NoError(t, composite())
	require.NoError(t, parts())
	require.NoError(t, api(t.Context()))
}
