// Relay-demo sends an order's event through NATS JetStream to a warehouse, which gets the event
// twice and takes the item from the stock once. The server, the shop and the warehouse run in this
// process; the shop and the warehouse each have a database.
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	_ "modernc.org/sqlite"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/inbox"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
	"github.com/outboxkit/outbox-go/relay"
	relaynats "github.com/outboxkit/outbox-go/relay/nats"
)

type order struct{ ID, Item string }

var orderPlaced = outbox.NewTopic[order]("Order", "OrderPlaced")

func main() {
	log.SetFlags(0)
	dir, err := os.MkdirTemp("", "relay-demo")
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	_, err = run(ctx, dir, os.Stdout)
	cancel()
	if err := errors.Join(err, os.RemoveAll(dir)); err != nil {
		log.Fatal(err)
	}
}

// run places an order and returns the stock when the order's message was delivered twice.
func run(ctx context.Context, dir string, out io.Writer) (stock int, err error) {
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(out, format+"\n", args...) }

	broker, err := startServer(dir)
	if err != nil {
		return 0, err
	}
	defer broker.Shutdown()
	say("NATS       runs in this process, on %s", broker.ClientURL())

	conn, err := nats.Connect(broker.ClientURL())
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		return 0, err
	}
	messages, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}})
	if err != nil {
		return 0, err
	}

	closeShop, err := placeOrder(ctx, dir, broker.ClientURL())
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, closeShop()) }()
	say("shop       the order and its event are committed in one transaction")

	w, err := openWarehouse(ctx, dir)
	if err != nil {
		return 0, err
	}
	defer func() { _ = w.db.Close() }()
	consumer, err := messages.CreateConsumer(ctx, jetstream.ConsumerConfig{Durable: "warehouse", AckWait: time.Second})
	if err != nil {
		return 0, err
	}
	for delivery := 1; delivery <= 2; delivery++ {
		m, err := consumer.Next(jetstream.FetchMaxWait(30 * time.Second))
		if err != nil {
			return 0, err
		}
		id := m.Headers().Get(jetstream.MsgIDHeader)
		say("NATS       delivers %s, type %s, delivery %d", id, m.Headers().Get("ce-type"), delivery)
		first, err := w.handle(ctx, id, m.Data())
		if err != nil {
			return 0, err
		}
		switch {
		case first:
			say("warehouse  takes the item, commits, and crashes before it acknowledges the message")
			continue
		default:
			say("warehouse  has the message in its inbox, and only acknowledges it")
		}
		if err := m.DoubleAck(ctx); err != nil {
			return 0, err
		}
	}
	err = w.db.QueryRowContext(ctx, "SELECT quantity FROM stock WHERE item = 'tea'").Scan(&stock)
	say("warehouse  has %d of 10 left: delivered twice, once in effect", stock)
	return stock, err
}

func startServer(dir string) (*server.Server, error) {
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: filepath.Join(dir, "nats"), NoSigs: true, NoLog: true,
	})
	if err != nil {
		return nil, err
	}
	s.Start()
	if !s.ReadyForConnections(20 * time.Second) {
		return nil, errors.New("the NATS server is not ready")
	}
	return s, nil
}

// placeOrder starts the shop with an outbox and a relay, and places an order.
func placeOrder(ctx context.Context, dir, natsURL string) (closeShop func() error, err error) {
	var opened []func() error
	closeAll := func() (err error) { // the last opened first
		for _, end := range slices.Backward(opened) {
			err = errors.Join(err, end())
		}
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, closeAll())
		}
	}()
	publisher, err := relaynats.New(relaynats.Config{URL: natsURL})
	if err != nil {
		return nil, err
	}
	opened = append(opened, func() error { return publisher.Close(ctx) })
	db, err := open(dir, "shop")
	if err != nil {
		return nil, err
	}
	opened = append(opened, db.Close)
	store := sqlstore.SQLite()
	_, err = db.ExecContext(ctx, "CREATE TABLE orders (id TEXT PRIMARY KEY, item TEXT)")
	if err := errors.Join(err, store.CreateSchema(ctx, db)); err != nil {
		return nil, err
	}
	r, err := relay.New(relay.Config{
		Publisher: publisher, Source: "/shop", Routes: []relay.Route{relay.To("orders.placed", orderPlaced.Kind())},
	})
	if err != nil {
		return nil, err
	}
	ob, err := outbox.New(outbox.Config{DB: db, Store: store, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	opened = append(opened, func() error { return ob.Close(ctx) }) // the outbox publishes the events in hand
	a, err := sqltx.New(db, ob.Writer())
	if err := errors.Join(err, ob.Register(r.Bindings()...), ob.Start(ctx)); err != nil {
		return nil, err
	}
	return closeAll, a.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
		o := order{ID: "o-1", Item: "tea"}
		if _, err := tx.ExecContext(ctx, "INSERT INTO orders VALUES (?, ?)", o.ID, o.Item); err != nil {
			return err
		}
		_, err := a.Write(ctx, tx, orderPlaced.Envelope(o.ID, o))
		return err
	})
}

// warehouse is another service, with a separate database.
type warehouse struct {
	db  *sql.DB
	box *inbox.Inbox
}

func openWarehouse(ctx context.Context, dir string) (*warehouse, error) {
	db, err := open(dir, "warehouse")
	if err != nil {
		return nil, err
	}
	box, err := inbox.New(inbox.Config{Dialect: inbox.SQLite})
	if err != nil {
		return nil, err
	}
	_, err = db.ExecContext(ctx, "CREATE TABLE stock (item TEXT PRIMARY KEY, quantity INTEGER); INSERT INTO stock VALUES ('tea', 10)")
	return &warehouse{db, box}, errors.Join(err, box.CreateSchema(ctx, db))
}

// handle takes the order's item from the stock, once for each message id.
func (w *warehouse) handle(ctx context.Context, messageID string, body []byte) (first bool, err error) {
	var o order
	if err := json.Unmarshal(body, &o); err != nil {
		return false, err
	}
	tx, err := w.db.BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after the commit
	first, err = w.box.Once(ctx, tx, "warehouse", messageID, func(ctx context.Context) error {
		_, err := tx.ExecContext(ctx, "UPDATE stock SET quantity = quantity - 1 WHERE item = ?", o.Item)
		return err
	})
	if err != nil {
		return false, err
	}
	return first, tx.Commit()
}

func open(dir, name string) (*sql.DB, error) {
	return sqltx.Open("sqlite", "file:"+filepath.Join(dir, name+".db")+"?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_txlock=immediate")
}
