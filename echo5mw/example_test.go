package echo5mw_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"

	"github.com/outboxkit/outbox-go/echo5mw"
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

// request sends a request to the app and prints the answer.
func request(e *echo.Echo, method, path string) {
	recorder := httptest.NewRecorder()
	e.ServeHTTP(recorder, httptest.NewRequest(method, path, nil))
	answer := fmt.Sprint(method, " ", path, " → ", recorder.Code, " ", recorder.Body)
	fmt.Println(strings.TrimSpace(answer))
}

// The client sees the 201 after the commit. An error of a handler rolls back.
func ExampleTransaction() {
	ob, store, adapter := newShop()
	e := echo.New()
	e.Use(middleware.Recover(), echo5mw.Transaction(adapter))
	e.POST("/orders/:id", func(c *echo.Context) error {
		o := order{ID: c.Param("id")}
		if _, err := ob.Writer().Write(c.Request().Context(), orderPlaced.Envelope(o.ID, o)); err != nil {
			return err
		}
		if o.ID == "o-2" {
			return echo.NewHTTPError(http.StatusConflict, "out of stock")
		}
		return c.JSON(http.StatusCreated, o)
	})
	request(e, "POST", "/orders/o-1")
	request(e, "POST", "/orders/o-2")
	fmt.Println(len(store.Rows()), "event")
	// Output:
	// POST /orders/o-1 → 201 {"ID":"o-1"}
	// POST /orders/o-2 → 409 {"message":"out of stock"}
	// 1 event
}

// A failed login answers 401, and its transaction commits all the same.
func ExampleTransactionConfig_ToMiddleware() {
	ob, store, adapter := newShop()
	transaction, err := echo5mw.TransactionConfig{
		Transactor: adapter,
		RollbackOn: func(_ *echo.Context, status int, err error) bool {
			return status != http.StatusUnauthorized && (err != nil || status >= 400)
		},
	}.ToMiddleware()
	check(err)
	e := echo.New()
	e.POST("/login", func(c *echo.Context) error {
		_, err := ob.Writer().Write(c.Request().Context(), outbox.Envelope{EventType: "LoginFailed", Payload: outbox.JSON("alice")})
		check(err)
		return echo.ErrUnauthorized
	}, transaction)
	request(e, "POST", "/login")
	fmt.Println(len(store.Rows()), "event")
	// Output:
	// POST /login → 401 {"message":"Unauthorized"}
	// 1 event
}

// OnCommit is for what must not happen when the transaction rolls back.
func ExampleOnCommit() {
	_, _, adapter := newShop()
	e := echo.New()
	e.POST("/orders", func(c *echo.Context) error {
		if err := echo5mw.OnCommit(c, func(context.Context) { fmt.Println("committed") }); err != nil {
			return err
		}
		return c.NoContent(http.StatusCreated)
	}, echo5mw.Transaction(adapter))
	request(e, "POST", "/orders")
	// Output:
	// committed
	// POST /orders → 201
}

// An error handler that explains to clients what to do about a commit of unknown
// outcome.
func ExampleCommitError() {
	e := echo.New()
	answer := e.HTTPErrorHandler
	e.HTTPErrorHandler = func(c *echo.Context, err error) {
		var commit *echo5mw.CommitError
		if errors.As(err, &commit) && errors.Is(err, outbox.ErrOutcomeUnknown) {
			err = echo.NewHTTPError(http.StatusInternalServerError, "look whether the order is there before you try again")
		}
		answer(c, err)
	}
	e.POST("/orders", func(*echo.Context) error { return &echo5mw.CommitError{Err: outbox.ErrOutcomeUnknown} })
	request(e, "POST", "/orders")
	// Output:
	// POST /orders → 500 {"message":"look whether the order is there before you try again"}
}

// A readiness check. The bounds say what makes a process unready.
func ExampleHealth() {
	ob, _, _ := newShop()
	e := echo.New()
	e.GET("/healthz", echo5mw.Health(echo5mw.HealthConfig{Outbox: ob, MaxPollDelay: echo5mw.NoBound}))
	recorder := httptest.NewRecorder()
	e.ServeHTTP(recorder, httptest.NewRequest("GET", "/healthz", nil))
	fmt.Println(recorder.Code)
	// Output:
	// 200
}

// Mount the endpoints behind your own authentication. Authorize says what those may do whom
// it lets in.
func ExampleAdmin() {
	ob, _, _ := newShop()
	e := echo.New()
	authenticated := middleware.BasicAuth(func(_ *echo.Context, _, password string) (bool, error) {
		return password == "secret", nil
	})
	echo5mw.Admin(e.Group("/admin/outbox", authenticated), ob, echo5mw.Access{
		Authorize: func(*http.Request) (string, echo5mw.Role) { return "operator", echo5mw.View },
	})
	request(e, "GET", "/admin/outbox/stats")
	// Output:
	// GET /admin/outbox/stats → 401 {"message":"Unauthorized"}
}
