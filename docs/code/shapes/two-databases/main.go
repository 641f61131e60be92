// The program of docs/shapes/two-databases.md: a service with an outbox in each of two databases.
package main

import (
	"context"
	"database/sql"
	"errors"
	"log"
	"os"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/docs/code/shapes/service"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

var itemReserved = outbox.NewTopic[service.Order]("Stock", "ItemReserved")

// run delivers the events of both databases until ctx ends.
func run(ctx context.Context, orders, stock *sql.DB) error {
	workers := outbox.NewSharedWorkers(16) // a bound on the listeners of both
	shop, err := newOutbox(orders, workers)
	if err != nil {
		return err
	}
	store, err := newOutbox(stock, workers)
	if err != nil {
		return err
	}
	reserve, err := sqltx.New(stock, store.Writer())
	if err != nil {
		return err
	}
	// The listener of one database writes into the other, and writes another event there.
	err = shop.Register(service.OrderPlaced.Listen(func(ctx context.Context, o service.Order, env outbox.Envelope) error {
		return reserve.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, "INSERT INTO orders (id, item) VALUES ($1, $2) ON CONFLICT DO NOTHING", o.ID, o.Item); err != nil {
				return err // the order's id makes the effect idempotent
			}
			reserved := itemReserved.Envelope(o.ID, o)
			reserved.EventID = env.EventID // a second delivery writes no second event
			_, err := reserve.Write(ctx, tx, reserved)
			if errors.Is(err, outbox.ErrDuplicateEvent) {
				return nil
			}
			return err
		})
	}))
	if err := errors.Join(err, store.Register(itemReserved.Listen(service.SendMail))); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 2)
	for _, ob := range []*outbox.Outbox{shop, store} {
		go func() { ended <- ob.Run(ctx) }()
	}
	first := <-ended
	stop() // when an outbox has ended, the other ends too
	return errors.Join(first, <-ended)
}

func newOutbox(db *sql.DB, workers *outbox.SharedWorkers) (*outbox.Outbox, error) {
	return outbox.New(outbox.Config{
		DB: db, Store: sqlstore.Postgres(),
		Mode: outbox.MultiNode{Dispatch: outbox.DispatchOptions{SharedWorkers: workers}},
	})
}

func main() {
	service.Main(func(ctx context.Context, orders *sql.DB) error {
		stock, err := sqltx.Open("pgx", os.Getenv("STOCK_URL"))
		if err != nil {
			log.Fatal(err)
		}
		return errors.Join(service.CreateTables(ctx, stock), run(ctx, orders, stock), stock.Close())
	})
}
