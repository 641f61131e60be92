package ginmw_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/outboxkit/outbox-go/ginmw"
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

// request sends a request to the engine and prints the answer.
func request(engine http.Handler, method, path string) {
	recorder := httptest.NewRecorder()
	engine.ServeHTTP(recorder, httptest.NewRequest(method, path, nil))
	answer := fmt.Sprintln(method, path, "→", recorder.Code, recorder.Body)
	fmt.Println(strings.TrimSpace(answer))
}

// The client sees the 201 after the commit. An error of a handler rolls back.
func ExampleTransaction() {
	ob, store, adapter := newShop()
	r := gin.New()
	r.Use(gin.Recovery(), ginmw.Transaction(adapter))
	r.POST("/orders/:id", func(c *gin.Context) {
		o := order{ID: c.Param("id")}
		if _, err := ob.Writer().Write(c.Request.Context(), orderPlaced.Envelope(o.ID, o)); err != nil {
			_ = c.Error(err)
			return
		}
		if o.ID == "o-2" {
			_ = c.Error(errors.New("out of stock"))
			return
		}
		c.JSON(http.StatusCreated, o)
	})
	request(r, "POST", "/orders/o-1")
	request(r, "POST", "/orders/o-2")
	fmt.Println(len(store.Rows()), "event")
	// Output:
	// POST /orders/o-1 → 201 {"ID":"o-1"}
	// POST /orders/o-2 → 500
	// 1 event
}

// A failed login answers 401, and its transaction commits all the same.
func ExampleTransactionConfig_ToMiddleware() {
	ob, store, adapter := newShop()
	transaction, err := ginmw.TransactionConfig{
		Transactor: adapter,
		RollbackOn: func(_ *gin.Context, status int, err error) bool {
			return err != nil || status >= 400 && status != http.StatusUnauthorized
		},
	}.ToMiddleware()
	check(err)
	r := gin.New()
	r.POST("/login", transaction, func(c *gin.Context) {
		_, err := ob.Writer().Write(c.Request.Context(), outbox.Envelope{EventType: "LoginFailed", Payload: outbox.JSON("alice")})
		check(err)
		c.Status(http.StatusUnauthorized)
	})
	request(r, "POST", "/login")
	fmt.Println(len(store.Rows()), "event")
	// Output:
	// POST /login → 401
	// 1 event
}

// OnCommit is for what must not happen when the transaction rolls back.
func ExampleOnCommit() {
	_, _, adapter := newShop()
	r := gin.New()
	r.POST("/orders", ginmw.Transaction(adapter), func(c *gin.Context) {
		check(ginmw.OnCommit(c, func(context.Context) { fmt.Println("committed") }))
		c.Status(http.StatusCreated)
	})
	request(r, "POST", "/orders")
	// Output:
	// committed
	// POST /orders → 201
}

// A middleware outside explains to clients what to do about a commit of unknown outcome.
func ExampleCommitError() {
	r := gin.New()
	r.Use(func(c *gin.Context) {
		c.Next()
		var commit *ginmw.CommitError
		if err := c.Errors.Last(); errors.As(err, &commit) && errors.Is(err, outbox.ErrOutcomeUnknown) {
			c.JSON(http.StatusInternalServerError, gin.H{"error": "look whether the order is there before you try again"})
		}
	})
	r.POST("/orders", func(c *gin.Context) { _ = c.Error(&ginmw.CommitError{Err: outbox.ErrOutcomeUnknown}) })
	request(r, "POST", "/orders")
	// Output:
	// POST /orders → 500 {"error":"look whether the order is there before you try again"}
}

// A readiness check. The bounds say what makes a process unready.
func ExampleHealth() {
	ob, _, _ := newShop()
	r := gin.New()
	r.GET("/healthz", ginmw.Health(ginmw.HealthConfig{Outbox: ob, MaxPollDelay: ginmw.NoBound}))
	recorder := httptest.NewRecorder()
	r.ServeHTTP(recorder, httptest.NewRequest("GET", "/healthz", nil))
	fmt.Println(recorder.Code)
	// Output:
	// 200
}

// Mount the endpoints behind your own authentication. Authorize says what those may do whom
// it lets in.
func ExampleAdmin() {
	ob, _, _ := newShop()
	r := gin.New()
	ginmw.Admin(r.Group("/admin/outbox", gin.BasicAuth(gin.Accounts{"operator": "secret"})), ob, ginmw.Access{
		Authorize: func(*http.Request) (string, ginmw.Role) { return "operator", ginmw.View },
	})
	request(r, "GET", "/admin/outbox/stats")
	// Output:
	// GET /admin/outbox/stats → 401
}

// Operators may replay events without reading them.
func ExampleAccess() {
	ob, _, _ := newShop()
	r := gin.New()
	ginmw.Admin(r.Group("/admin/outbox"), ob, ginmw.Access{
		Authorize: func(*http.Request) (string, ginmw.Role) { return "ada", ginmw.Operate },
	})
	request(r, "POST", "/admin/outbox/wake")
	// Output:
	// POST /admin/outbox/wake → 204
}
