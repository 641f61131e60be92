// Package fiber_test has the code of docs/how-to/web/fiber.md.
package fiber_test

import (
	"bufio"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gofiber/fiber/v3"
	recoverer "github.com/gofiber/fiber/v3/middleware/recover"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/dashboard"
	"github.com/outboxkit/outbox-go/docs/code/shop"
	"github.com/outboxkit/outbox-go/fibermw"
	"github.com/outboxkit/outbox-go/httptx"
	"github.com/outboxkit/outbox-go/idempotency"
	"github.com/outboxkit/outbox-go/outbox"
)

type order = shop.Order

var orderPlaced = shop.OrderPlaced

func newServer(ob *outbox.Outbox, a *sqltx.Adapter) *fiber.App {
	app := fiber.New(fiber.Config{ErrorHandler: answerErrors})
	app.Use(recoverer.New(), fibermw.Transaction(a))

	app.Post("/orders/:id", func(c fiber.Ctx) error {
		ctx := c.Context() // carries the transaction; c does not
		tx, _ := a.TxFrom(ctx)
		o := order{ID: c.Params("id"), Item: "tea"}
		// on PostgreSQL: VALUES ($1, $2)
		if _, err := tx.ExecContext(ctx, "INSERT INTO orders (id, item) VALUES (?, ?)", o.ID, o.Item); err != nil {
			return err // rolls back
		}
		if _, err := a.Write(ctx, tx, orderPlaced.Envelope(o.ID, o)); err != nil {
			return err
		}
		return c.Status(fiber.StatusCreated).JSON(o) // sent after the commit
	})

	app.Get("/healthz", fibermw.Health(fibermw.HealthConfig{Outbox: ob}))
	fibermw.Admin(app.Group("/admin/outbox"), ob, fibermw.Access{Authorize: roleOf})
	return app
}

// answerErrors answers an error of a handler, and a *fibermw.CommitError, without its text.
func answerErrors(c fiber.Ctx, err error) error {
	var known *fiber.Error
	if errors.As(err, &known) {
		return c.Status(known.Code).JSON(fiber.Map{"error": known.Message})
	}
	slog.ErrorContext(c.Context(), "a request failed", "error", err)
	return c.Status(fiber.StatusInternalServerError).JSON(fiber.Map{"error": "not saved"})
}

// roleOf lets one user operate the outbox, and all others see nothing.
func roleOf(r *http.Request) (user string, role httptx.Role) {
	user, password, _ := r.BasicAuth()
	if user == "ada" && password == "secret" { // ask your own user store
		return user, httptx.Operate
	}
	return "", 0
}

// withKeys lets clients send a request again.
func withKeys(a *sqltx.Adapter, keys *idempotency.Keys) (fiber.Handler, error) {
	return fibermw.TransactionConfig{
		Transactor:  a,
		Idempotency: &httptx.Idempotency{Keys: keys},
	}.ToMiddleware()
}

// export writes an event, and then streams.
func export(ob *outbox.Outbox) fiber.Handler {
	return func(c fiber.Ctx) error {
		event := outbox.Envelope{EventType: "OrdersExported", Payload: outbox.JSON("all")}
		if _, err := ob.Writer().Write(c.Context(), event); err != nil {
			return err
		}
		return c.SendStreamWriter(func(w *bufio.Writer) {
			_, _ = w.WriteString("id,item\n") // writes no events
		})
	}
}

func addPage(app *fiber.App, page *dashboard.Dashboard) {
	app.Use("/outbox", fibermw.Handler(http.StripPrefix("/outbox", page)))
	app.Hooks().OnPreShutdown(func() error { page.EndStreams(); return nil })
}

func TestFiber(t *testing.T) {
	t.Parallel()
	s := shop.Open(t)
	app := newServer(s.Outbox, s.Adapter)
	keys, err := idempotency.New(idempotency.Config{DB: s.DB, Dialect: idempotency.SQLite})
	require.NoError(t, err)
	require.NoError(t, keys.CreateSchema(t.Context()))
	keyed, err := withKeys(s.Adapter, keys)
	require.NoError(t, err)
	withKeyed := fiber.New()
	withKeyed.Post("/export", keyed, export(s.Outbox))
	page, err := dashboard.New(dashboard.Config{
		Outboxes: map[string]*outbox.Outbox{"orders": s.Outbox}, Access: httptx.Access{Authorize: roleOf},
	})
	require.NoError(t, err)
	addPage(app, page)
	send := func(method, path, user string) int {
		app := app
		if path == "/export" {
			app = withKeyed
		}
		request := httptest.NewRequestWithContext(t.Context(), method, path, nil)
		request.SetBasicAuth(user, "secret")
		response, err := app.Test(request)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		return response.StatusCode
	}
	require.Equal(t, http.StatusCreated, send("POST", "/orders/o-1", ""))
	require.Equal(t, http.StatusInternalServerError, send("POST", "/orders/o-1", ""))
	require.Equal(t, http.StatusNotFound, send("POST", "/nowhere", ""))
	s.Has(t, order{ID: "o-1", Item: "tea"})
	require.Equal(t, http.StatusOK, send("POST", "/export", ""))
	require.Equal(t, http.StatusServiceUnavailable, send("GET", "/healthz", ""), "before Start")
	require.Equal(t, http.StatusNoContent, send("POST", "/admin/outbox/wake", "ada"))
	require.Equal(t, http.StatusForbidden, send("POST", "/admin/outbox/wake", "eve"))
	require.Equal(t, http.StatusOK, send("GET", "/outbox/orders/", "ada"))
	require.NoError(t, app.Shutdown())
}
