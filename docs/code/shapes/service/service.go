// Package service stands for the reader's own service in the programs of docs/shapes: orders, events and
// a server.
package service

import (
	"context"
	"database/sql"
	"errors"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// Order is a row of the table orders, and the payload of an event.
type Order struct {
	ID   string `json:"id"`
	Item string `json:"item"`
}

// OrderPlaced is the event of an order.
var OrderPlaced = outbox.NewTopic[Order]("Order", "OrderPlaced")

// Place stores an order and its event in one transaction.
func Place(ctx context.Context, a *sqltx.Adapter, o Order) error {
	return a.RunInTx(ctx, nil, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "INSERT INTO orders (id, item) VALUES ($1, $2)", o.ID, o.Item); err != nil {
			return err
		}
		_, err := a.Write(ctx, tx, OrderPlaced.Envelope(o.ID, o))
		return err
	})
}

// Orders places an order for POST /orders/{id}/{item}.
func Orders(a *sqltx.Adapter) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders/{id}/{item}", func(w http.ResponseWriter, r *http.Request) {
		if err := Place(r.Context(), a, Order{r.PathValue("id"), r.PathValue("item")}); err != nil {
			log.Print(err)
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	return mux
}

// SendMail is the listener of OrderPlaced.
func SendMail(_ context.Context, o Order, env outbox.Envelope) error {
	log.Printf("sending a mail for order %s of %s (event %s)", o.ID, o.Item, env.EventID)
	return nil
}

// Serve answers requests until ctx ends and the last answer has left.
func Serve(ctx context.Context, l net.Listener, handler http.Handler) error {
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(l) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		return server.Shutdown(late)
	}
}

// CreateTables creates the tables. Your migration tool does that in production.
func CreateTables(ctx context.Context, db *sql.DB) error {
	_, err := db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, item TEXT NOT NULL)")
	return errors.Join(err, sqlstore.Postgres().CreateSchema(ctx, db))
}

// Main runs a program on the PostgreSQL of DATABASE_URL until it is interrupted.
func Main(run func(ctx context.Context, db *sql.DB) error) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	db, err := sqltx.Open("pgx", os.Getenv("DATABASE_URL"))
	if err == nil {
		err = errors.Join(CreateTables(ctx, db), run(ctx, db), db.Close())
	}
	if err != nil {
		log.Fatal(err)
	}
}

// Listen listens on a port of this machine.
func Listen(ctx context.Context, port string) net.Listener {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", ":"+port)
	if err != nil {
		log.Fatal(err)
	}
	return l
}
