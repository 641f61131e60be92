// Package echo_test has the code of docs/how-to/web/echo.md.
package echo_test

import (
	"database/sql"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/docs/code/shop"
	"github.com/outboxkit/outbox-go/echo5mw"
	"github.com/outboxkit/outbox-go/outbox"
)

type order = shop.Order

var orderPlaced = shop.OrderPlaced

func newServer(ob *outbox.Outbox, a *sqltx.Adapter) *echo.Echo {
	e := echo.New()
	e.Use(middleware.Recover(), echo5mw.Transaction(a))

	e.POST("/orders/:id", func(c *echo.Context) error {
		ctx := c.Request().Context() // carries the transaction
		tx, _ := a.TxFrom(ctx)
		o := order{ID: c.Param("id"), Item: "tea"}
		// on PostgreSQL: VALUES ($1, $2)
		if _, err := tx.ExecContext(ctx, "INSERT INTO orders (id, item) VALUES (?, ?)", o.ID, o.Item); err != nil {
			return err // rolls back
		}
		if _, err := a.Write(ctx, tx, orderPlaced.Envelope(o.ID, o)); err != nil {
			return err
		}
		return c.JSON(http.StatusCreated, o) // sent after the commit
	})

	e.GET("/healthz", echo5mw.Health(echo5mw.HealthConfig{Outbox: ob}))
	echo5mw.Admin(e.Group("/admin/outbox"), ob, echo5mw.Access{Authorize: roleOf})
	return e
}

// roleOf lets one user operate the outbox, and all others see nothing.
func roleOf(r *http.Request) (user string, role echo5mw.Role) {
	user, password, _ := r.BasicAuth()
	if user == "ada" && password == "secret" { // ask your own user store
		return user, echo5mw.Operate
	}
	return "", 0
}

func newLogin(a *sqltx.Adapter) (*echo.Echo, error) {
	transaction, err := echo5mw.TransactionConfig{
		Transactor: a,
		TxOptions:  &sql.TxOptions{Isolation: sql.LevelSerializable},
		RollbackOn: func(_ *echo.Context, status int, err error) bool {
			return status != http.StatusUnauthorized && (err != nil || status >= 400)
		},
	}.ToMiddleware()
	if err != nil {
		return nil, err
	}
	e := echo.New()
	e.POST("/login", login, transaction)
	return e, nil
}

func login(*echo.Context) error { return echo.ErrUnauthorized }

func TestEcho(t *testing.T) {
	t.Parallel()
	s := shop.Open(t)
	e := newServer(s.Outbox, s.Adapter)
	status := func(method, path, user string) int {
		answer := httptest.NewRecorder()
		request := httptest.NewRequestWithContext(t.Context(), method, path, nil)
		request.SetBasicAuth(user, "secret")
		e.ServeHTTP(answer, request)
		return answer.Code
	}
	require.Equal(t, http.StatusCreated, status("POST", "/orders/o-1", ""))
	require.Equal(t, http.StatusInternalServerError, status("POST", "/orders/o-1", ""))
	s.Has(t, order{ID: "o-1", Item: "tea"})
	require.Equal(t, http.StatusServiceUnavailable, status("GET", "/healthz", ""), "before Start")
	require.Equal(t, http.StatusNoContent, status("POST", "/admin/outbox/wake", "ada"))
	require.Equal(t, http.StatusForbidden, status("POST", "/admin/outbox/wake", "eve"))
	_, err := newLogin(s.Adapter)
	require.NoError(t, err)
}
