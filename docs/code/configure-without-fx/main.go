// Shop is a web service with an outbox on PostgreSQL, without a framework.
package main

import (
	"context"
	"database/sql"
	"errors"
	"log"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/httptx"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

type order struct{ ID, Item string }

var orderPlaced = outbox.NewTopic[order]("Order", "OrderPlaced")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Getenv("DATABASE_URL"), "127.0.0.1:8080"); err != nil {
		log.Print(err)
		os.Exit(1)
	}
}

// run serves until ctx ends. Then it stops the server, delivers the queued events, and
// closes the database, in this order.
func run(ctx context.Context, dsn, addr string) error {
	db, err := sqltx.Open("pgx", dsn) // instead of sql.Open
	if err != nil {
		return err
	}
	defer db.Close()
	ob, err := newOutbox(ctx, db)
	if err != nil {
		return err
	}
	a, err := sqltx.New(db, ob.Writer())
	if err != nil {
		return err
	}
	if err := ob.Start(ctx); err != nil {
		return err
	}
	server := &http.Server{Addr: addr, Handler: newHandler(ob, a), ReadHeaderTimeout: 10 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- server.ListenAndServe() }()
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	ctx = context.WithoutCancel(ctx)
	requests, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	err = errors.Join(err, server.Shutdown(requests)) // no request writes any more
	return errors.Join(err, ob.Close(ctx))            // delivers the queued events
}

// newOutbox configures the outbox and registers the listeners.
func newOutbox(ctx context.Context, db *sql.DB) (*outbox.Outbox, error) {
	store, err := sqlstore.Detect(ctx, db) // or sqlstore.Postgres(), MySQL(), SQLite()
	if err != nil {
		return nil, err
	}
	if err := store.CreateSchema(ctx, db); err != nil { // or a migration
		return nil, err
	}
	ob, err := outbox.New(outbox.Config{
		DB: db, Store: store,
		Mode: outbox.MultiNode{Dispatch: outbox.DispatchOptions{
			Workers:         32,
			ListenerTimeout: 30 * time.Second,
		}},
		Purge: &outbox.PurgeOptions{Retention: 7 * 24 * time.Hour},
	})
	if err != nil {
		return nil, err
	}
	return ob, ob.Register(orderPlaced.Listen(sendMail))
}

// sendMail is called after the commit, at least once for each order.
func sendMail(_ context.Context, o order, env outbox.Envelope) error {
	log.Printf("mail: your %s is on its way (event %s)", o.Item, env.EventID)
	return nil
}

func newHandler(ob *outbox.Outbox, a *sqltx.Adapter) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /healthz", httptx.Health(httptx.HealthConfig{Outbox: ob}))
	mux.HandleFunc("POST /orders/{id}", func(w http.ResponseWriter, r *http.Request) {
		o := order{ID: r.PathValue("id"), Item: r.FormValue("item")}
		err := a.RunInTx(r.Context(), nil, func(ctx context.Context, tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, "INSERT INTO orders (id, item) VALUES ($1, $2)", o.ID, o.Item); err != nil {
				return err
			}
			_, err := a.Write(ctx, tx, orderPlaced.Envelope(o.ID, o))
			return err
		})
		if err != nil {
			log.Print(err)
			http.Error(w, "the order was not placed", http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusCreated)
	})
	return mux
}
