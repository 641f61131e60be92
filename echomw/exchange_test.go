package echomw_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/echomw"
	"github.com/outboxkit/outbox-go/outbox"
)

// The middlewares outside find request and response as they were, and what a
// goroutine of the handler writes later does not reach the client.
func TestNothingOfTheMiddlewareIsLeftBehind(t *testing.T) {
	t.Parallel()
	a := newApp(t)
	var kept http.ResponseWriter
	checked := 0
	a.Use(recovery(), func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			request, response, writer := c.Request(), c.Response(), c.Response().Writer
			defer func() {
				require.Same(t, request, c.Request())
				require.Same(t, response, c.Response())
				require.Same(t, writer, c.Response().Writer)
				require.ErrorIs(t, a.write(c), outbox.ErrNoTransaction)
				require.ErrorIs(t, echomw.OnCommit(c, func(context.Context) {}), outbox.ErrNoTransaction)
				_, err := kept.Write([]byte("late"))
				require.ErrorContains(t, err, "answered already")
				checked++
			}()
			return next(c)
		}
	}, echomw.Transaction(a.transactor), echo.WrapMiddleware(plain))
	a.POST("/:fate", a.writing(func(c echo.Context) error {
		kept = c.Response().Writer.(*echo.Response).Writer // under the one of WrapMiddleware
		switch c.Param("fate") {
		case "panic":
			panic("boom")
		case "error":
			return errTest
		case "stream":
			c.Response().Flush()
		}
		return c.String(http.StatusOK, "ok")
	}))
	a.wantAnswer(a.post("/good"), 200, "ok")
	a.wantAnswer(a.post("/stream"), 200, "ok")
	a.wantAnswer(a.post("/error"), 500, `{"error":"internal"}`)
	a.wantAnswer(a.post("/panic"), 500, `{"error":"internal"}`)
	require.Equal(t, 4, checked)
}

// A commit that fails in a stream is answered with that error alone, also when a
// Logger inside has asked before.
func TestACommitThatFailsInAStreamIsAnswered(t *testing.T) {
	t.Parallel()
	a := newApp(t).withDeferredConstraint().transaction(nil, logging(), recovery())
	a.POST("/", func(c echo.Context) error {
		if err := a.failingCommit(c); err != nil {
			return err
		}
		return http.NewResponseController(c.Response().Writer).Flush() // Echo's own response drops the error
	})
	a.wantAnswer(a.post("/"), 500, `{"error":"not committed"}`)
}

// A context of the application's own stays what handlers get.
func TestHandlersGetTheApplicationsOwnContext(t *testing.T) {
	t.Parallel()
	a := newApp(t).transaction(outside(recovery(), ownContexts))
	a.POST("/", a.writing(func(c echo.Context) error { return c.String(http.StatusOK, c.(*ownContext).user) }))
	a.wantAnswer(a.post("/"), 200, "me")
	a.want(1, "commit")
}

// ownContext is a context as Echo's guide has it.
type ownContext struct {
	echo.Context
	user string
}

func ownContexts(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error { return next(&ownContext{Context: c, user: "me"}) }
}
