// Package gin_test has the code of docs/how-to/web/gin.md.
package gin_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/docs/code/shop"
	"github.com/outboxkit/outbox-go/ginmw"
	"github.com/outboxkit/outbox-go/outbox"
)

type order = shop.Order

var orderPlaced = shop.OrderPlaced

func newServer(ob *outbox.Outbox, a *sqltx.Adapter) *gin.Engine {
	r := gin.New()
	r.Use(gin.Recovery(), answerErrors, ginmw.Transaction(a))

	r.POST("/orders/:id", func(c *gin.Context) {
		ctx := c.Request.Context() // carries the transaction
		tx, _ := a.TxFrom(ctx)
		o := order{ID: c.Param("id"), Item: "tea"}
		// on PostgreSQL: VALUES ($1, $2)
		if _, err := tx.ExecContext(ctx, "INSERT INTO orders (id, item) VALUES (?, ?)", o.ID, o.Item); err != nil {
			_ = c.Error(err) // rolls back
			return
		}
		if _, err := a.Write(ctx, tx, orderPlaced.Envelope(o.ID, o)); err != nil {
			_ = c.Error(err)
			return
		}
		c.JSON(http.StatusCreated, o) // sent after the commit
	})

	r.GET("/healthz", ginmw.Health(ginmw.HealthConfig{Outbox: ob}))
	ginmw.Admin(r.Group("/admin/outbox"), ob, ginmw.Access{Authorize: roleOf})
	return r
}

// answerErrors answers what no inner handler has answered: an error of a handler, and a
// *ginmw.CommitError.
func answerErrors(c *gin.Context) {
	c.Next()
	if len(c.Errors) > 0 && !c.Writer.Written() {
		c.JSON(c.Writer.Status(), gin.H{"error": "not saved"})
	}
}

// roleOf lets one user operate the outbox, and all others see nothing.
func roleOf(r *http.Request) (user string, role ginmw.Role) {
	user, password, _ := r.BasicAuth()
	if user == "ada" && password == "secret" { // ask your own user store
		return user, ginmw.Operate
	}
	return "", 0
}

func TestGin(t *testing.T) {
	t.Parallel()
	s := shop.Open(t)
	r := newServer(s.Outbox, s.Adapter)
	send := func(method, path, user string) *httptest.ResponseRecorder {
		answer := httptest.NewRecorder()
		request := httptest.NewRequestWithContext(t.Context(), method, path, nil)
		request.SetBasicAuth(user, "secret")
		r.ServeHTTP(answer, request)
		return answer
	}
	require.Equal(t, http.StatusCreated, send("POST", "/orders/o-1", "").Code)
	again := send("POST", "/orders/o-1", "")
	require.Equal(t, http.StatusInternalServerError, again.Code)
	require.JSONEq(t, `{"error": "not saved"}`, again.Body.String())
	s.Has(t, order{ID: "o-1", Item: "tea"})
	require.Equal(t, http.StatusServiceUnavailable, send("GET", "/healthz", "").Code, "before Start")
	require.Equal(t, http.StatusNoContent, send("POST", "/admin/outbox/wake", "ada").Code)
	require.Equal(t, http.StatusForbidden, send("POST", "/admin/outbox/wake", "eve").Code)
}
