package fibermw_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/basicauth"
	recoverer "github.com/gofiber/fiber/v3/middleware/recover"

	"github.com/outboxkit/outbox-go/fibermw"
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
func request(app *fiber.App, method, path string) {
	response, err := app.Test(httptest.NewRequest(method, path, nil))
	check(err)
	body, err := io.ReadAll(response.Body)
	check(err)
	check(response.Body.Close())
	answer := fmt.Sprintln(method, path, "→", response.StatusCode, string(body))
	fmt.Println(strings.TrimSpace(answer))
}

// The client sees the 201 after the commit. An error of a handler rolls back.
func ExampleTransaction() {
	ob, store, adapter := newShop()
	app := fiber.New()
	app.Use(recoverer.New(), fibermw.Transaction(adapter))
	app.Post("/orders/:id", func(c fiber.Ctx) error {
		o := order{ID: c.Params("id")}
		if _, err := ob.Writer().Write(c.Context(), orderPlaced.Envelope(o.ID, o)); err != nil {
			return err
		}
		if o.ID == "o-2" {
			return fiber.NewError(fiber.StatusConflict, "out of stock")
		}
		return c.Status(fiber.StatusCreated).JSON(o)
	})
	request(app, "POST", "/orders/o-1")
	request(app, "POST", "/orders/o-2")
	fmt.Println(len(store.Rows()), "event")
	// Output:
	// POST /orders/o-1 → 201 {"ID":"o-1"}
	// POST /orders/o-2 → 409 out of stock
	// 1 event
}

// A failed login answers 401, and its transaction commits all the same.
func ExampleTransactionConfig_ToMiddleware() {
	ob, store, adapter := newShop()
	transaction, err := fibermw.TransactionConfig{
		Transactor: adapter,
		RollbackOn: func(_ fiber.Ctx, status int, _ error) bool {
			return status >= 400 && status != fiber.StatusUnauthorized
		},
	}.ToMiddleware()
	check(err)
	app := fiber.New()
	app.Post("/login", transaction, func(c fiber.Ctx) error {
		_, err := ob.Writer().Write(c.Context(), outbox.Envelope{EventType: "LoginFailed", Payload: outbox.JSON("alice")})
		check(err)
		return fiber.ErrUnauthorized
	})
	request(app, "POST", "/login")
	fmt.Println(len(store.Rows()), "event")
	// Output:
	// POST /login → 401 Unauthorized
	// 1 event
}

// OnCommit is for what must not happen when the transaction rolls back.
func ExampleOnCommit() {
	_, _, adapter := newShop()
	app := fiber.New()
	app.Post("/orders", fibermw.Transaction(adapter), func(c fiber.Ctx) error {
		check(fibermw.OnCommit(c, func(context.Context) { fmt.Println("committed") }))
		return c.SendStatus(fiber.StatusCreated)
	})
	request(app, "POST", "/orders")
	// Output:
	// committed
	// POST /orders → 201 Created
}

// An ErrorHandler explains to clients what to do about a commit of unknown outcome, and keeps the text
// of errors to itself.
func ExampleCommitError() {
	app := fiber.New(fiber.Config{ErrorHandler: func(c fiber.Ctx, err error) error {
		var commit *fibermw.CommitError
		if errors.As(err, &commit) && errors.Is(err, outbox.ErrOutcomeUnknown) {
			return c.Status(500).JSON(fiber.Map{"error": "look whether the order is there before you try again"})
		}
		return c.Status(500).JSON(fiber.Map{"error": "not saved"})
	}})
	app.Post("/orders", func(fiber.Ctx) error { return &fibermw.CommitError{Err: outbox.ErrOutcomeUnknown} })
	request(app, "POST", "/orders")
	// Output:
	// POST /orders → 500 {"error":"look whether the order is there before you try again"}
}

// A readiness check. The bounds say what makes a process unready.
func ExampleHealth() {
	ob, _, _ := newShop()
	app := fiber.New()
	app.Get("/healthz", fibermw.Health(fibermw.HealthConfig{Outbox: ob, MaxPollDelay: fibermw.NoBound}))
	response, err := app.Test(httptest.NewRequest("GET", "/healthz", nil))
	check(err)
	check(response.Body.Close())
	fmt.Println(response.StatusCode)
	// Output:
	// 200
}

// Mount the endpoints behind your own authentication. Authorize says what those may do whom
// it lets in.
func ExampleAdmin() {
	ob, _, _ := newShop()
	app := fiber.New()
	operators := basicauth.New(basicauth.Config{Authorizer: func(string, string, fiber.Ctx) bool { return false }})
	fibermw.Admin(app.Group("/admin/outbox", operators), ob, fibermw.Access{
		Authorize: func(*http.Request) (string, fibermw.Role) { return "operator", fibermw.View },
	})
	request(app, "GET", "/admin/outbox/stats")
	// Output:
	// GET /admin/outbox/stats → 401 Unauthorized
}

// Operators may replay events without reading them.
func ExampleAccess() {
	ob, _, _ := newShop()
	app := fiber.New()
	fibermw.Admin(app.Group("/admin/outbox"), ob, fibermw.Access{
		Authorize: func(*http.Request) (string, fibermw.Role) { return "ada", fibermw.Operate },
	})
	request(app, "POST", "/admin/outbox/wake")
	// Output:
	// POST /admin/outbox/wake → 204
}
