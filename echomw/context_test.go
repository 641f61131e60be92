package echomw_test

import (
	"net/http"
	"testing"

	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/echomw"
)

// ownContext is a context as Echo's guide has it.
type ownContext struct {
	echo.Context
	user string
}

func ownContexts(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error { return next(&ownContext{Context: c, user: "me"}) }
}

// deepContext embeds it one level below.
type deepContext struct{ *ownContext }

// valueContext is no pointer.
type valueContext struct{ echo.Context }

func TestHandlersGetTheApplicationsOwnContext(t *testing.T) {
	t.Parallel()
	for name, wrap := range map[string]echo.MiddlewareFunc{
		"pointer": ownContexts,
		"deep": func(next echo.HandlerFunc) echo.HandlerFunc {
			return func(c echo.Context) error { return next(&deepContext{&ownContext{Context: c, user: "me"}}) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newApp(t)
			var kept echo.Context
			a.transaction(outside(recovery(), wrap, func(next echo.HandlerFunc) echo.HandlerFunc {
				return func(c echo.Context) error {
					if own, ok := c.(*ownContext); ok {
						before := own.Context
						defer func() { require.Same(t, before, own.Context, "it is as it was") }()
					}
					return next(c)
				}
			}), recovery())
			handler := func(c echo.Context) error {
				kept = c
				_ = c.String(http.StatusOK, "good")
				if c.QueryParam("panic") != "" {
					panic("boom")
				}
				return nil
			}
			a.POST("/", a.writing(handler))
			a.wantAnswer(a.post("/"), 200, "good")
			a.wantAnswer(a.post("/?panic=1"), 500, `{"error":"internal"}`)
			a.want(1, "commit", "rollback")
			switch c := kept.(type) {
			case *ownContext:
				require.Equal(t, "me", c.user)
			case *deepContext:
				require.Equal(t, "me", c.user)
			default:
				t.Fatalf("it got a %T", kept)
			}
		})
	}
}

// A context that cannot be changed is wrapped, so that errors are not missed.
func TestAContextOfAnotherShapeIsWrapped(t *testing.T) {
	t.Parallel()
	a := newApp(t)
	a.transaction(outside(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error { return next(valueContext{c}) }
	}), recovery())
	a.POST("/", a.writing(func(c echo.Context) error {
		_ = c.String(http.StatusOK, "good")
		panic("boom")
	}))
	a.wantAnswer(a.post("/"), 500, `{"error":"internal"}`)
	a.want(0, "rollback")
}

// Two applications share one middleware, and each has its own error handler.
func TestOneMiddlewareServesSeveralApplications(t *testing.T) {
	t.Parallel()
	a := newApp(t)
	shared := echomw.Transaction(a.transactor)
	a.Use(shared, recovery())
	other := newAppOn(t, &app{db: a.db, writer: a.writer, record: a.record, transactor: a.transactor, exec: a.exec})
	other.Use(shared, recovery())
	other.HTTPErrorHandler = func(_ error, c echo.Context) { _ = c.String(http.StatusTeapot, "the other's") }
	for _, app := range []*app{a, other} {
		app.POST("/", app.writing(func(c echo.Context) error {
			_ = c.String(http.StatusOK, "good")
			panic("boom")
		}))
	}
	a.wantAnswer(a.post("/"), 500, `{"error":"internal"}`)
	other.wantAnswer(other.post("/"), 418, "the other's")
	a.want(0, "rollback", "rollback")
}
