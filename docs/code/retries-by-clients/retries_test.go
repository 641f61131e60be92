// Package retries_test has the code of docs/how-to/retries-by-clients.md.
package retries_test

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/grpc"
	_ "modernc.org/sqlite"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/connecttx"
	"github.com/outboxkit/outbox-go/grpctx"
	"github.com/outboxkit/outbox-go/httptx"
	"github.com/outboxkit/outbox-go/idempotency"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

func newServer(ctx context.Context, db *sql.DB, a *sqltx.Adapter) (http.Handler, error) {
	keys, err := idempotency.New(idempotency.Config{DB: db, Dialect: idempotency.SQLite})
	if err != nil {
		return nil, err
	}
	if err := keys.CreateSchema(ctx); err != nil { // or keys.Schema() in your migrations
		return nil, err
	}
	transaction, err := httptx.TransactionConfig{
		Transactor: a,
		Idempotency: &httptx.Idempotency{
			Keys:  keys,
			Scope: func(r *http.Request) string { return userOf(r) },
		},
	}.ToMiddleware()
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("POST /orders", transaction(orders(a)))
	return mux, nil
}

func purge(ctx context.Context, keys *idempotency.Keys) {
	for range time.Tick(time.Hour) {
		if _, err := keys.Purge(ctx, 24*time.Hour); err != nil {
			log.Print(err)
		}
	}
}

// importOrders is work that is no web request: a job that may run twice.
func importOrders(ctx context.Context, keys *idempotency.Keys, a *sqltx.Adapter, file string) error {
	ctx, attempt, err := keys.Begin(ctx, a, nil, idempotency.Request{Scope: "import", Key: file})
	if err != nil {
		return err // such as idempotency.ErrRunning
	}
	if attempt.Done() {
		return nil
	}
	defer func() { _ = attempt.Rollback() }() // does nothing after Commit
	tx, _ := a.TxFrom(ctx)
	if _, err := tx.ExecContext(ctx, "INSERT INTO orders (item) VALUES (?)", "coffee"); err != nil {
		return err
	}
	return attempt.Commit(idempotency.Answer{Status: http.StatusOK})
}

func newInterceptor(keys *idempotency.Keys, a *sqltx.Adapter) (grpc.UnaryServerInterceptor, error) {
	return grpctx.Config{
		Transactor: a,
		Idempotency: &grpctx.Idempotency{
			Keys:  keys,
			Scope: userOfCall,
		},
	}.ToInterceptor()
}

func newConnectInterceptor(keys *idempotency.Keys, a *sqltx.Adapter) (connect.Interceptor, error) {
	return connecttx.Config{
		Transactor: a,
		Idempotency: &connecttx.Idempotency{
			Keys:  keys,
			Scope: userOfConnect,
		},
	}.ToInterceptor()
}

func userOfConnect(context.Context, connect.AnyRequest) string { return "ann" }

func userOfCall(context.Context) string { return "ann" }

func userOf(*http.Request) string { return "ann" }

func orders(a *sqltx.Adapter) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tx, _ := a.TxFrom(r.Context())
		item, err := io.ReadAll(r.Body)
		check(err)
		result, err := tx.ExecContext(r.Context(), "INSERT INTO orders (item) VALUES (?)", string(item))
		check(err)
		id, err := result.LastInsertId()
		check(err)
		w.Header().Set("Location", fmt.Sprint("/orders/", id))
		w.WriteHeader(http.StatusCreated)
	})
}

func Example() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	db, err := sqltx.Open("sqlite", "file:/retries?vfs=memdb&_txlock=immediate")
	check(err)
	defer func() { check(db.Close()) }()
	_, err = db.ExecContext(ctx, "CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT NOT NULL)")
	check(err)
	ob, err := outbox.New(outbox.Config{DB: db, Store: sqlstore.SQLite()})
	check(err)
	a, err := sqltx.New(db, ob.Writer())
	check(err)
	handler, err := newServer(ctx, db, a)
	check(err)
	for _, item := range []string{"tea", "tea", "coffee"} {
		r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader(item))
		r.Header.Set("Idempotency-Key", `"8e03978e-40d5-43dd-bc93-6894a57f9324"`)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		fmt.Printf("%d location=%s replayed=%s\n", w.Code, w.Header().Get("Location"), w.Header().Get("Idempotent-Replayed"))
	}

	keys, err := idempotency.New(idempotency.Config{DB: db, Dialect: idempotency.SQLite})
	check(err)
	check(importOrders(ctx, keys, a, "orders.csv"))
	check(importOrders(ctx, keys, a, "orders.csv"))
	var placed int
	check(db.QueryRowContext(ctx, "SELECT COUNT(*) FROM orders").Scan(&placed))
	fmt.Println(placed, "orders")
	_ = purge
	_, err = newInterceptor(keys, a)
	check(err)
	_, err = newConnectInterceptor(keys, a)
	check(err)
	// Output:
	// 201 location=/orders/1 replayed=
	// 201 location=/orders/1 replayed=true
	// 422 location= replayed=
	// 2 orders
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
