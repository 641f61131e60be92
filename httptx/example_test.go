package httptx_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/outboxkit/outbox-go/httptx"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

type order struct{ ID string }

var orderPlaced = outbox.NewTopic[order]("Order", "OrderPlaced")

// newShop returns an outbox over a store in memory, and what stands for an adapter, such
// as that of package sqltx.
func newShop() (*outbox.Outbox, *outboxtest.Store, outbox.Transactor) {
	store := outboxtest.NewStore()
	ob, err := outbox.New(outbox.Config{DB: store.DB(), Store: store})
	check(err)
	return ob, store, outboxtest.NewTransactor(store.DB())
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// request sends a request to the handler and prints the answer.
func request(handler http.Handler, method, path string) {
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, httptest.NewRequest(method, path, nil))
	answer := fmt.Sprintln(method, path, "→", recorder.Code, recorder.Body)
	fmt.Println(strings.TrimSpace(answer))
}

// The client sees the 201 after the commit. A status of 400 or more rolls back.
func ExampleTransaction() {
	ob, store, adapter := newShop()
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{id}", httptx.Transaction(adapter)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o := order{ID: r.PathValue("id")}
		if _, err := ob.Writer().Write(r.Context(), orderPlaced.Envelope(o.ID, o)); err != nil {
			http.Error(w, "not placed", http.StatusInternalServerError)
			return
		}
		if o.ID == "o-2" {
			http.Error(w, "out of stock", http.StatusConflict)
			return
		}
		w.WriteHeader(http.StatusCreated)
	})))
	request(mux, "POST", "/orders/o-1")
	request(mux, "POST", "/orders/o-2")
	fmt.Println(len(store.Rows()), "event")
	// Output:
	// POST /orders/o-1 → 201
	// POST /orders/o-2 → 409 out of stock
	// 1 event
}

// A failed login answers 401, and its transaction commits all the same.
func ExampleTransactionConfig_ToMiddleware() {
	ob, store, adapter := newShop()
	transaction, err := httptx.TransactionConfig{
		Transactor: adapter,
		RollbackOn: func(_ *http.Request, status int, _ http.Header) bool {
			return status >= 400 && status != http.StatusUnauthorized
		},
	}.ToMiddleware()
	check(err)
	handler := transaction(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := ob.Writer().Write(r.Context(), outbox.Envelope{EventType: "LoginFailed", Payload: outbox.JSON("alice")})
		check(err)
		w.WriteHeader(http.StatusUnauthorized)
	}))
	request(handler, "POST", "/login")
	fmt.Println(len(store.Rows()), "event")
	// Output:
	// POST /login → 401
	// 1 event
}

// OnCommit is for what must not happen when the transaction rolls back.
func ExampleOnCommit() {
	_, _, adapter := newShop()
	handler := httptx.Transaction(adapter)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		check(httptx.OnCommit(r.Context(), func(context.Context) { fmt.Println("committed") }))
		w.WriteHeader(http.StatusCreated)
	}))
	request(handler, "POST", "/orders")
	// Output:
	// committed
	// POST /orders → 201
}

// An error handler that tells clients what to do about a commit of unknown outcome.
func ExampleCommitError() {
	answer := func(w http.ResponseWriter, _ *http.Request, err error) {
		var commit *httptx.CommitError
		if errors.As(err, &commit) && errors.Is(err, outbox.ErrOutcomeUnknown) {
			http.Error(w, "look whether the order is there before you try again", http.StatusInternalServerError)
			return
		}
		http.Error(w, "not placed", http.StatusInternalServerError)
	}
	_, _, adapter := newShop()
	_, err := httptx.TransactionConfig{Transactor: adapter, ErrorHandler: answer}.ToMiddleware()
	check(err)

	recorder := httptest.NewRecorder()
	answer(recorder, nil, &httptx.CommitError{Err: outbox.ErrOutcomeUnknown})
	fmt.Print(recorder.Body)
	// Output:
	// look whether the order is there before you try again
}

// A readiness check. Of a process that has not started, the poller is not ready.
func ExampleHealth() {
	ob, _, _ := newShop()
	mux := http.NewServeMux()
	mux.Handle("GET /healthz", httptx.Health(httptx.HealthConfig{Outbox: ob}))
	recorder := httptest.NewRecorder()
	mux.ServeHTTP(recorder, httptest.NewRequest("GET", "/healthz", nil))
	fmt.Println(recorder.Code)
	// Output:
	// 503
}

// The bounds of a check, with the error of a mistake instead of a panic.
func ExampleHealthConfig_ToHandler() {
	ob, _, _ := newShop()
	handler, err := httptx.HealthConfig{
		Outbox:       ob,
		MaxPollDelay: httptx.NoBound, // ready before Start too
	}.ToHandler()
	check(err)
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, httptest.NewRequest("GET", "/healthz", nil))
	fmt.Println(recorder.Code)
	// Output:
	// 200
}

// Authorize says who may do what. Without it every request is refused.
func ExampleAdmin() {
	ob, _, _ := newShop()
	access := httptx.Access{Authorize: func(r *http.Request) (string, httptx.Role) {
		user, password, _ := r.BasicAuth()
		if user != "ada" || password != "secret" {
			return "", 0
		}
		return user, httptx.Operate
	}}
	mux := http.NewServeMux()
	mux.Handle("/admin/outbox/", http.StripPrefix("/admin/outbox", httptx.Admin(ob, access)))
	recorder := httptest.NewRecorder()
	mux.ServeHTTP(recorder, httptest.NewRequest("GET", "/admin/outbox/stats", nil))
	fmt.Println(recorder.Code)
	// Output:
	// 403
}

func asOperator(*http.Request) (string, httptx.Role) { return "ada", httptx.Operate }

// A framework with a router of its own mounts the endpoints one by one.
func ExampleAdminRoutes() {
	ob, _, _ := newShop()
	mux := http.NewServeMux() // stands for the framework's router
	for _, route := range httptx.AdminRoutes(ob, httptx.Access{Authorize: asOperator}) {
		mux.Handle(route.Method+" "+route.Path, route)
	}
	request(mux, "GET", "/pauses")
	// Output:
	// GET /pauses → 200 {"pauses":[]}
}
