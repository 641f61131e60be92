package echomw_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/echomw"
)

// Echo's Timeout outside of the middleware ends the transaction's context. Inside
// it answers while the handler still runs: that is rolled back, and what the
// handler writes afterwards fails.
func TestTimeouts(t *testing.T) {
	t.Parallel()
	const limit = 2 * time.Second                                                     // which begins before the transaction does
	timeout := middleware.TimeoutWithConfig(middleware.TimeoutConfig{Timeout: limit}) //nolint:staticcheck // deprecated, and used.
	contextTimeout := middleware.ContextTimeout(limit)
	for name, mount := range map[string]func(a *app){
		"Timeout outside":        func(a *app) { a.transaction(outside(timeout)) },
		"Timeout inside":         func(a *app) { a.transaction(outside(seesStatus), timeout) },
		"ContextTimeout outside": func(a *app) { a.transaction(outside(contextTimeout)) },
		"ContextTimeout inside":  func(a *app) { a.transaction(nil, contextTimeout) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newApp(t)
			mount(a)
			goOn, late := make(chan struct{}), make(chan error, 1)
			inside := name == "Timeout inside"
			a.POST("/", func(c echo.Context) error {
				if err := a.write(c); err != nil {
					return err
				}
				ctx := c.Request().Context()
				_, _ = c.Response().Write([]byte("unheard"))
				<-ctx.Done()
				if inside {
					<-goOn // the client has its answer
					late <- a.exec(ctx, "INSERT INTO written (id) VALUES ('late')")
				}
				return ctx.Err()
			})
			got := a.post("/")
			if name == "ContextTimeout outside" { // which translates an error that was answered already
				require.Equal(t, 500, got.StatusCode)
			} else {
				require.Equal(t, 503, got.StatusCode)
			}
			require.NotContains(t, got.body, "unheard")
			close(goOn)
			if inside {
				require.Error(t, <-late)
			}
			a.server.Close()
			require.Eventually(t, func() bool { return len(a.record.Outcomes()) == 1 }, 20*time.Second, time.Millisecond)
			a.want(0, "rollback")
		})
	}
}

// seesStatus answers with the status that Echo knows of, as a logger would tell
// it: Timeout answers without Echo's knowledge.
func seesStatus(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		err := next(c)
		if res := c.Response(); err == nil && (!res.Committed || res.Status != http.StatusServiceUnavailable) {
			panic("Echo does not know of the answer")
		}
		return err
	}
}

// Before the router the middleware sees the requests that have no route too.
func TestMountedBeforeTheRouter(t *testing.T) {
	t.Parallel()
	a := newApp(t)
	a.Pre(recovery(), echomw.Transaction(a.transactor))
	a.POST("/", a.writing(func(c echo.Context) error { return c.NoContent(http.StatusCreated) }))
	a.wantAnswer(a.post("/"), 201, "")
	require.Equal(t, 404, a.post("/nowhere").StatusCode)
	a.want(1, "commit")
}

// The middleware's writer cannot be gone around.
func TestTheWriterIsNotUnwrapped(t *testing.T) {
	t.Parallel()
	a := newApp(t).transaction(nil)
	a.POST("/", a.writing(func(c echo.Context) error {
		writer := c.Response().Writer
		if _, ok := writer.(interface{ Unwrap() http.ResponseWriter }); ok {
			return errors.New("it can be unwrapped")
		}
		return c.String(http.StatusOK, "ok")
	}))
	a.wantAnswer(a.post("/"), 200, "ok")
}

// A recorder can neither be hijacked nor have deadlines.
func TestWhatTheConnectionCannotDoIsNoReasonToCommit(t *testing.T) {
	t.Parallel()
	a := newApp(t).transaction(nil)
	a.POST("/", a.writing(func(c echo.Context) error {
		_, _, err := c.Response().Hijack()
		require.ErrorIs(t, err, http.ErrNotSupported)
		require.ErrorIs(t, http.NewResponseController(c.Response()).SetReadDeadline(time.Now()), http.ErrNotSupported)
		require.Empty(t, a.record.Outcomes())
		return errTest
	}))
	recorder := httptest.NewRecorder()
	a.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil))
	require.Equal(t, 500, recorder.Code)
	a.want(0, "rollback")
}
