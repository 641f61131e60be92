package listeners_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

type Order struct {
	ID    string `json:"id"`
	Total int    `json:"total"`
}

var orderPlaced = outbox.NewTopic[Order]("Order", "OrderPlaced")

// mails stands for a mail server.
type mails struct{}

func (mails) Send(_ context.Context, o Order, key string) error {
	fmt.Println("mail for", o.ID, "with a key:", key != "")
	return nil
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// deliver starts an outbox with the interceptors, commits an order, and closes it, which
// delivers the event.
func deliver(o Order, register func(ob *outbox.Outbox) error, interceptors ...outbox.Interceptor) *outboxtest.Store {
	ctx := context.Background()
	store := outboxtest.NewStore()
	ob, err := outbox.New(outbox.Config{
		DB: store.DB(), Store: store, Interceptors: interceptors, Logger: slog.New(slog.DiscardHandler),
	})
	check(err)
	check(register(ob))
	check(ob.Start(ctx))
	check(outbox.InTx(ctx, outboxtest.NewTransactor(store.DB()), func(ctx context.Context) error {
		_, err := ob.Writer().Write(ctx, orderPlaced.Envelope(o.ID, o))
		return err
	}))
	check(ob.Close(ctx))
	return store
}

func Example_oneListener() {
	var mailer mails
	register := func(ob *outbox.Outbox) error {
		err := ob.Register(orderPlaced.Listen(func(ctx context.Context, o Order, env outbox.Envelope) error {
			return mailer.Send(ctx, o, env.EventID)
		}))
		return err
	}
	deliver(Order{ID: "o-1", Total: 42}, register)
	// Output:
	// mail for o-1 with a key: true
}

var (
	errNoAddress = errors.New("the customer has no address")
	errBusy      = errors.New("429 too many requests")
	errDown      = errors.New("503 service unavailable")
)

// send answers by the total of the order.
func send(_ context.Context, o Order) error {
	switch o.Total {
	case 1:
		return errNoAddress
	case 2:
		return errBusy
	case 3:
		return errors.New("no answer")
	case 4:
		return errDown
	default:
		return nil
	}
}

func Example_results() {
	listener := orderPlaced.Listen(func(ctx context.Context, o Order, _ outbox.Envelope) error {
		err := send(ctx, o)
		switch {
		case errors.Is(err, errNoAddress):
			return outbox.Dead(err) // DEAD at once: another attempt would fail too
		case errors.Is(err, errDown):
			return outbox.PauseFor(5*time.Minute, err) // no event of this kind until then
		case errors.Is(err, errBusy):
			return outbox.RetryIn(30*time.Second, err) // the server said when
		default:
			return err // nil is done; an error is retried with backoff
		}
	})
	for total := range 5 {
		store := deliver(Order{ID: "o-1", Total: total}, func(ob *outbox.Outbox) error { return ob.Register(listener) })
		row := store.Rows()[0]
		fmt.Printf("%s %d %q\n", row.Status, row.Attempts, row.LastError)
	}
	// Output:
	// DONE 0 ""
	// DEAD 0 "the customer has no address"
	// RETRY 1 "429 too many requests (retry after 30s)"
	// RETRY 1 "no answer"
	// NEW 0 "503 service unavailable"
}

func Example_interceptor() {
	slow := 100 * time.Millisecond
	warn := func(next outbox.Listener) outbox.Listener {
		return outbox.ListenerFunc(func(ctx context.Context, env outbox.Envelope) error {
			began := time.Now()
			err := next.OnEvent(ctx, env)
			if lasted := time.Since(began); lasted > slow {
				slog.WarnContext(ctx, "a slow listener", "event", env.EventID, "lasted", lasted)
			}
			return err
		})
	}
	deliver(Order{ID: "o-1"}, func(ob *outbox.Outbox) error {
		return ob.Register(orderPlaced.Listen(func(_ context.Context, o Order, _ outbox.Envelope) error {
			fmt.Println("mail for", o.ID)
			return nil
		}))
	}, warn)
	// Output:
	// mail for o-1
}
