package echomw_test

import (
	"context"
	"database/sql"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"testing"

	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/echomw"
	"github.com/outboxkit/outbox-go/internal/adaptertest"
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

// countingTransactor counts the transactions and savepoints that it began.
type countingTransactor struct {
	outbox.Transactor
	begun int
}

func (c *countingTransactor) Begin(ctx context.Context, opts *sql.TxOptions) (context.Context, outbox.Transaction, error) {
	c.begun++
	return c.Transactor.Begin(ctx, opts)
}

func TestMountedTwiceItActsOnce(t *testing.T) {
	t.Parallel()
	a := newApp(t)
	transactor := &countingTransactor{Transactor: a.transactor}
	a.transactor = transactor
	a.transaction(nil)
	a.Group("/orders", echomw.Transaction(transactor)).POST("", a.writing(func(c echo.Context) error {
		return c.String(http.StatusOK, "ok")
	}))
	a.wantAnswer(a.post("/orders"), 200, "ok")
	a.want(1, "commit")
	require.Equal(t, 1, transactor.begun)
}

func TestASavepointWithinTheRequest(t *testing.T) {
	t.Parallel()
	a := newApp(t).transaction(nil)
	a.POST("/", a.writing(func(c echo.Context) error {
		err := outbox.InTx(c.Request().Context(), a.transactor, func(ctx context.Context) error {
			if _, err := a.writer.Write(ctx, adaptertest.Event()); err != nil {
				return err
			}
			return errTest
		})
		require.ErrorIs(t, err, errTest)
		return c.String(http.StatusOK, "ok")
	}))
	a.wantAnswer(a.post("/"), 200, "ok")
	a.want(1, "rollback", "commit")
}

func TestInformationalAnswersAreNotHeldBack(t *testing.T) {
	t.Parallel()
	a := newApp(t).transaction(nil)
	hinted := make(chan struct{})
	a.POST("/", a.writing(func(c echo.Context) error {
		c.Response().Header().Set("Link", "</style.css>")
		c.Response().Writer.WriteHeader(http.StatusEarlyHints)
		<-hinted
		require.Empty(t, a.record.Outcomes())
		return c.String(http.StatusOK, "ok")
	}))
	a.start()
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(status int, _ textproto.MIMEHeader) error {
		require.Equal(t, http.StatusEarlyHints, status)
		close(hinted)
		return nil
	}})
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, a.server.URL, nil)
	require.NoError(t, err)
	response, err := a.client.Do(request)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, 200, response.StatusCode)
	a.want(1, "commit")
}
