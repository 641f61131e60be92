// Shards is a process with four databases, each with its own outbox. The customer of an order picks
// the database. All four outboxes share four workers.
//
//	go run ./samples/shards
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
	"github.com/outboxkit/outbox-go/samples/internal/database"
)

const (
	shardCount = 4
	workers    = 4
	orderCount = 200
)

type order struct{ ID, Customer string }

var orderPlaced = outbox.NewTopic[order]("Order", "OrderPlaced")

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "shards:", err)
		os.Exit(1)
	}
}

func run() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	dir, err := os.MkdirTemp("", "shards")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	desk, shared := desk{}, outbox.NewSharedWorkers(workers)
	for i := range shardCount {
		s, openErr := openShard(ctx, filepath.Join(dir, fmt.Sprintf("shard-%d.db", i)), shared, desk.onOrderPlaced)
		if openErr != nil {
			return fmt.Errorf("shard %d: %w", i, openErr)
		}
		defer func() { err = errors.Join(err, s.close(ctx)) }()
		desk.shards = append(desk.shards, s)
	}
	for i := range orderCount {
		o := order{ID: fmt.Sprintf("o-%d", i), Customer: fmt.Sprintf("customer-%d", i%50)}
		if err := desk.place(ctx, o); err != nil {
			return err
		}
	}
	return desk.report(ctx)
}

// shard is a database and its outbox.
type shard struct {
	db     *database.DB
	outbox *outbox.Outbox
	tx     *sqltx.Adapter
}

func openShard(ctx context.Context, file string, shared *outbox.SharedWorkers, listener func(context.Context, order, outbox.Envelope) error) (*shard, error) {
	db, err := database.Open(ctx, "", file)
	if err != nil {
		return nil, err
	}
	store := sqlstore.SQLite()
	ob, err := outbox.New(outbox.Config{DB: db, Store: store, Mode: outbox.SingleNode{
		Dispatch: outbox.DispatchOptions{SharedWorkers: shared},
	}})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	tx, err := sqltx.New(db.DB, ob.Writer())
	s := &shard{db, ob, tx}
	_, createErr := db.ExecContext(ctx, "CREATE TABLE orders (id VARCHAR(64) PRIMARY KEY, customer VARCHAR(64))")
	if err = errors.Join(err, createErr, store.CreateSchema(ctx, db), ob.Register(orderPlaced.Listen(listener)), ob.Start(ctx)); err != nil {
		return nil, errors.Join(err, s.close(ctx))
	}
	return s, nil
}

func (s *shard) close(ctx context.Context) error {
	return errors.Join(s.outbox.Close(ctx), s.db.Close())
}

// desk takes the orders.
type desk struct {
	shards                   []*shard
	running, most, delivered atomic.Int64
}

// of returns the shard of a customer. The shard must not change as long as the customer has rows.
func (d *desk) of(customer string) int {
	h := fnv.New32a()
	h.Write([]byte(customer))
	return int(h.Sum32() % shardCount)
}

// place inserts the order and writes the event, in a transaction of the customer's shard.
func (d *desk) place(ctx context.Context, o order) error {
	s := d.shards[d.of(o.Customer)]
	return s.tx.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "INSERT INTO orders VALUES (?, ?)", o.ID, o.Customer); err != nil {
			return err
		}
		_, err := s.tx.Write(ctx, tx, orderPlaced.Envelope(o.ID, o))
		return err
	})
}

// onOrderPlaced is the listener of all shards.
func (d *desk) onOrderPlaced(context.Context, order, outbox.Envelope) error {
	n := d.running.Add(1)
	defer d.running.Add(-1)
	for most := d.most.Load(); n > most; most = d.most.Load() {
		d.most.CompareAndSwap(most, n)
	}
	time.Sleep(5 * time.Millisecond) // a mail, for example
	d.delivered.Add(1)
	return nil
}

// report waits for the events and prints the number of orders in each shard.
func (d *desk) report(ctx context.Context) error {
	for d.delivered.Load() < orderCount && ctx.Err() == nil {
		time.Sleep(10 * time.Millisecond)
	}
	for i, s := range d.shards {
		var orders int
		if err := s.db.QueryRowContext(ctx, "SELECT count(*) FROM orders").Scan(&orders); err != nil {
			return err
		}
		fmt.Printf("shard %d has %d orders\n", i, orders)
	}
	fmt.Printf("delivered %d events of %d, at most %d at once\n", d.delivered.Load(), orderCount, d.most.Load())
	return ctx.Err()
}
