package outboxfx_test

import (
	"context"
	"database/sql"
	"fmt"

	"go.uber.org/fx"

	outboxfx "github.com/outboxkit/outbox-go/fxmodule"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

type order struct{ ID string }

var orderPlaced = outbox.NewTopic[order]("Order", "OrderPlaced")

// newSQLDB stands for sqltx.Open, and memory for the store of its database.
func newSQLDB(lc fx.Lifecycle) *sql.DB {
	lc.Append(fx.StopHook(func() { fmt.Println("closing the database") }))
	return new(sql.DB)
}

func memory() outbox.Store { return outboxtest.NewStore() }

// newTransactor stands for sqltx.New, outboxbun.New or outboxgorm.New.
func newTransactor(db *sql.DB) outbox.Transactor { return outboxtest.NewTransactor(db) }

// shop writes events.
type shop struct {
	tx     outbox.Transactor
	events *outbox.Writer
}

func newShop(tx outbox.Transactor, events *outbox.Writer) *shop { return &shop{tx, events} }

func (s *shop) place(ctx context.Context, id string) error {
	return outbox.InTx(ctx, s.tx, func(ctx context.Context) error {
		_, err := s.events.Write(ctx, orderPlaced.Envelope(id, order{id}))
		return err
	})
}

func newOrderListener() outbox.Binding {
	return orderPlaced.Listen(func(_ context.Context, o order, env outbox.Envelope) error {
		fmt.Println("delivered:", env.EventType, o.ID)
		return nil
	})
}

func Example() {
	var s *shop
	app := fx.New(
		fx.NopLogger,
		fx.Provide(newSQLDB, newTransactor, newShop),
		outboxfx.NewModule(outboxfx.WithStore(memory)), // with a database: outboxfx.Module
		outboxfx.AsBinding(newOrderListener),
		fx.Replace(outboxfx.Config{Mode: outboxfx.MultiNode}),
		fx.Populate(&s),
	)
	ctx := context.Background()
	if err := app.Start(ctx); err != nil {
		fmt.Println(err)
		return
	}
	if err := s.place(ctx, "o-1"); err != nil {
		fmt.Println(err)
	}
	if err := app.Stop(ctx); err != nil { // delivers what is queued
		fmt.Println(err)
	}
	// Output:
	// delivered: OrderPlaced o-1
	// closing the database
}

// mailer is a listener of two kinds of events. It depends on a service that writes
// events to the outbox that it listens to.
type mailer struct {
	s    *shop
	done chan struct{}
}

func newMailer(s *shop, done chan struct{}) *mailer { return &mailer{s, done} }

func (m *mailer) OnEvent(ctx context.Context, env outbox.Envelope) error {
	fmt.Println("mail:", env.EventType, env.AggregateID)
	if env.EventType == "OrderCancelled" {
		return m.s.place(ctx, "instead of "+env.AggregateID)
	}
	close(m.done)
	return nil
}

func ExampleAsListener() {
	var (
		tx     outbox.Transactor
		events *outbox.Writer
	)
	done := make(chan struct{})
	app := fx.New(
		fx.NopLogger,
		fx.Provide(newSQLDB, newTransactor, newShop),
		fx.Supply(done),
		outboxfx.NewModule(outboxfx.WithStore(memory)),
		outboxfx.AsListener(newMailer, outboxfx.On("Order", "OrderPlaced"), outboxfx.On("Order", "OrderCancelled")),
		fx.Populate(&tx, &events),
	)
	ctx := context.Background()
	if err := app.Start(ctx); err != nil {
		fmt.Println(err)
		return
	}
	err := outbox.InTx(ctx, tx, func(ctx context.Context) error {
		_, err := events.Write(ctx, outbox.Envelope{EventType: "OrderCancelled", AggregateType: "Order", AggregateID: "o-1", Payload: outbox.RawJSON(`{}`)})
		return err
	})
	if err != nil {
		fmt.Println(err)
	}
	<-done
	if err := app.Stop(ctx); err != nil {
		fmt.Println(err)
	}
	// Output:
	// mail: OrderCancelled o-1
	// mail: OrderPlaced instead of o-1
	// closing the database
}
