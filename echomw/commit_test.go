package echomw_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/echomw"
	"github.com/outboxkit/outbox-go/outbox"
)

// Nothing of a success is sent when the commit fails, in any form.
func TestAFailedCommitSendsNothingOfTheResponse(t *testing.T) {
	t.Parallel()
	big := strings.Repeat("success ", 400_000)
	a := newApp(t).withDeferredConstraint()
	a.Use(recovery(), middleware.Gzip())
	a.configured(everyMethod())
	a.Use(logging(), recovery())
	handlers := map[string]echo.HandlerFunc{
		"/json":      func(c echo.Context) error { return c.JSON(http.StatusCreated, echo.Map{"ok": true}) },
		"/nocontent": func(c echo.Context) error { return c.NoContent(http.StatusNoContent) },
		"/nothing":   func(echo.Context) error { return nil },
		"/redirect":  func(c echo.Context) error { return c.Redirect(http.StatusSeeOther, "/success") },
		"/overflow":  func(c echo.Context) error { return c.Blob(http.StatusOK, "text/plain", []byte(big)) },
		"/stream":    func(c echo.Context) error { return c.Stream(http.StatusOK, "text/plain", strings.NewReader(big)) },
		"/flush": func(c echo.Context) error {
			_, _ = fmt.Fprint(c.Response(), "success")
			c.Response().Flush() // its error is ignored
			_, _ = fmt.Fprint(c.Response(), "success")
			return nil
		},
		"/untilgone": func(c echo.Context) error {
			_, _ = fmt.Fprint(c.Response(), "success")
			c.Response().Flush()
			<-c.Request().Context().Done() // as a stream of events does
			return nil
		},
		"/thenpanic": func(c echo.Context) error {
			c.Response().Flush()
			panic("boom")
		},
		"/hijack": func(c echo.Context) error {
			conn, _, err := c.Response().Hijack()
			if err == nil {
				_ = conn.Close()
			}
			return err
		},
		"/websocket": func(c echo.Context) error {
			_, err := websocket.Accept(c.Response(), c.Request(), nil)
			return err
		},
	}
	for path, handler := range handlers {
		a.GET(path, a.writing(func(c echo.Context) error {
			if err := a.failingCommit(c); err != nil {
				return err
			}
			if err := echomw.OnCommit(c, func(context.Context) { panic("it has not committed") }); err != nil {
				return err
			}
			c.Response().Header().Set("Set-Cookie", "success=1")
			return handler(c)
		}))
	}
	var rollbacks []string
	for path := range handlers {
		got := a.send("GET", path, "Connection", "Upgrade", "Upgrade", "websocket",
			"Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA==")
		require.Equal(t, `{"error":"not committed"}`, got.body, path)
		require.Equal(t, 500, got.StatusCode, path)
		for _, header := range []string{"Set-Cookie", "Location", "Sec-WebSocket-Accept", "Upgrade"} {
			require.Empty(t, got.Header.Get(header), path)
		}
		rollbacks = append(rollbacks, "rollback")
		a.want(0, rollbacks...)
	}
}

// The context of the transaction is cancelled when a stream could not commit.
func TestTheErrorHandlerGetsALiveContext(t *testing.T) {
	t.Parallel()
	a := newApp(t).withDeferredConstraint().transaction(nil)
	a.HTTPErrorHandler = func(_ error, c echo.Context) {
		if !c.Response().Committed {
			require.NoError(t, c.Request().Context().Err())
			require.ErrorIs(t, a.write(c), outbox.ErrNoTransaction)
			_ = c.NoContent(http.StatusTeapot)
		}
	}
	a.POST("/", func(c echo.Context) error {
		return errors.Join(a.failingCommit(c), http.NewResponseController(c.Response().Writer).Flush())
	})
	a.wantAnswer(a.post("/"), 418, "")
}
