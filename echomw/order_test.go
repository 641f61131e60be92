package echomw_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/echomw"
)

// failures are handlers that fail after they have written a success, or not.
var failures = map[string]echo.HandlerFunc{
	"panics":                 func(echo.Context) error { panic("boom") },
	"panics after a success": func(c echo.Context) error { _ = c.JSON(http.StatusOK, echo.Map{"ok": true}); panic("boom") },
	"panics with an error":   func(echo.Context) error { panic(errTest) },
	"fails":                  func(echo.Context) error { return errTest },
	"fails after a success":  func(c echo.Context) error { _ = c.JSON(http.StatusOK, echo.Map{"ok": true}); return errTest },
	"answers itself":         func(c echo.Context) error { c.Error(errTest); return nil },
	"answers itself after a success": func(c echo.Context) error {
		_ = c.JSON(http.StatusOK, echo.Map{"ok": true})
		c.Error(errTest)
		return nil
	},
}

// gunzip undoes what a client with Accept-Encoding: gzip got.
func gunzip(t *testing.T, got answer) answer {
	t.Helper()
	if got.Header.Get("Content-Encoding") != "gzip" {
		return got
	}
	reader, err := gzip.NewReader(bytes.NewReader(got.raw))
	require.NoError(t, err)
	body, err := io.ReadAll(reader)
	require.NoError(t, err)
	got.body = strings.TrimSpace(string(body))
	return got
}

// Recover and Logger answer errors themselves and return nil: without knowing of
// it, the middleware would commit.
func TestErrorsAnsweredInsideAndOutsideRollBack(t *testing.T) {
	t.Parallel()
	requestLogger := middleware.RequestLoggerWithConfig(middleware.RequestLoggerConfig{
		HandleError: true, LogStatus: true, LogValuesFunc: func(echo.Context, middleware.RequestLoggerValues) error { return nil },
	})
	short := middleware.GzipWithConfig(middleware.GzipConfig{MinLength: 1000})
	orders := map[string]func(a *app){
		"Recover outside":                 func(a *app) { a.transaction(outside(recovery())) },
		"Logger and Recover outside":      func(a *app) { a.transaction(outside(logging(), recovery())) },
		"Recover inside":                  func(a *app) { a.transaction(nil, recovery()) },
		"Logger and Recover inside":       func(a *app) { a.transaction(nil, logging(), recovery()) },
		"RequestLogger that answers":      func(a *app) { a.transaction(nil, requestLogger, recovery()) },
		"Recover on both sides":           func(a *app) { a.transaction(outside(recovery()), recovery()) },
		"Gzip outside":                    func(a *app) { a.transaction(outside(recovery(), middleware.Gzip())) },
		"Gzip outside, Recover inside":    func(a *app) { a.transaction(outside(middleware.Gzip()), recovery()) },
		"Gzip inside":                     func(a *app) { a.transaction(outside(recovery()), middleware.Gzip()) },
		"Gzip inside, then Recover":       func(a *app) { a.transaction(nil, middleware.Gzip(), recovery()) },
		"Recover inside, then Gzip":       func(a *app) { a.transaction(nil, recovery(), middleware.Gzip()) },
		"Gzip with a minimum, inside":     func(a *app) { a.transaction(nil, short, logging(), recovery()) },
		"a net/http middleware inside":    func(a *app) { a.transaction(nil, recovery(), echo.WrapMiddleware(plain)) },
		"Recover in a net/http one":       func(a *app) { a.transaction(nil, echo.WrapMiddleware(plain), recovery()) },
		"the middleware twice":            func(a *app) { a.transaction(outside(echomw.Transaction(a.transactor)), logging(), recovery()) },
		"a context of the app's, outside": func(a *app) { a.transaction(outside(ownContexts), recovery()) },
		"a context of the app's, inside":  func(a *app) { a.transaction(nil, ownContexts, recovery()) },
	}
	for order, mount := range orders {
		t.Run(order, func(t *testing.T) {
			t.Parallel()
			a := newApp(t)
			mount(a)
			for name, handler := range failures {
				a.POST("/"+name, a.writing(handler))
			}
			a.POST("/succeeds", a.writing(func(c echo.Context) error { return c.JSON(http.StatusCreated, echo.Map{"ok": true}) }))
			var rollbacks []string
			for name := range failures {
				path := "/" + strings.ReplaceAll(name, " ", "%20")
				for _, encoding := range []string{"identity", "gzip"} {
					got := gunzip(t, a.post(path, "Accept-Encoding", encoding))
					require.Equal(t, `{"error":"internal"}`, got.body, name)
					require.Equal(t, 500, got.StatusCode, name)
					rollbacks = append(rollbacks, "rollback")
					a.want(0, rollbacks...)
				}
			}
			got := gunzip(t, a.post("/succeeds", "Accept-Encoding", "gzip"))
			a.wantAnswer(got, 201, `{"ok":true}`)
			a.want(1, append(rollbacks, "commit")...)
		})
	}
}

func plain(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(w, r) })
}

// What an inner Gzip holds back or has compressed of a success is not mixed into
// the answer of an error, and an error that a handler has rendered stays.
func TestAnErrorThatWasRenderedIsSentOnce(t *testing.T) {
	t.Parallel()
	a := newApp(t).transaction(nil, logging(), middleware.Gzip(), recovery())
	a.POST("/", a.writing(func(c echo.Context) error {
		_ = c.JSON(http.StatusUnprocessableEntity, echo.Map{"field": "quantity"})
		return errTest
	}))
	a.POST("/long", a.writing(func(c echo.Context) error {
		_ = c.String(http.StatusOK, strings.Repeat("success ", 50_000))
		panic("boom")
	}))
	for _, encoding := range []string{"identity", "gzip"} {
		a.wantAnswer(gunzip(t, a.post("/", "Accept-Encoding", encoding)), 422, `{"field":"quantity"}`)
		a.wantAnswer(gunzip(t, a.post("/long", "Accept-Encoding", encoding)), 500, `{"error":"internal"}`)
	}
	a.want(0, "rollback", "rollback", "rollback", "rollback")
}

// An error handler that is set after the middleware, or that answers errors with
// 200 as JSON-RPC does, is the one that is asked.
func TestTheApplicationsOwnErrorHandlerAnswers(t *testing.T) {
	t.Parallel()
	a := newApp(t).transaction(nil, recovery())
	for name, handler := range failures {
		a.POST("/"+name, a.writing(handler))
	}
	a.HTTPErrorHandler = func(_ error, c echo.Context) {
		if !c.Response().Committed {
			_ = c.JSON(http.StatusOK, echo.Map{"jsonrpc": "2.0", "error": 1})
		}
	}
	n := 0
	for name := range failures {
		a.wantAnswer(a.post("/"+strings.ReplaceAll(name, " ", "%20")), 200, `{"error":1,"jsonrpc":"2.0"}`)
		n++
	}
	require.Len(t, a.record.Outcomes(), n)
	require.NotContains(t, a.record.Outcomes(), "commit")
}

// The headers that were there before, and those of a handler that wrote nothing,
// belong to the error's answer; those of a success do not.
func TestHeadersOfAnErrorsAnswer(t *testing.T) {
	t.Parallel()
	a := newApp(t).transaction(outside(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			c.Response().Header().Set("X-Request-Id", "1")
			return next(c)
		}
	}))
	a.POST("/unauthorized", a.writing(func(c echo.Context) error {
		c.Response().Header().Set("WWW-Authenticate", "Basic")
		return echo.NewHTTPError(http.StatusUnauthorized, "who?")
	}))
	a.POST("/late", a.writing(func(c echo.Context) error {
		c.Response().Header().Set("Location", "/orders/1")
		c.Response().Header().Set("X-Request-Id", "2")
		_ = c.JSON(http.StatusCreated, echo.Map{"ok": true})
		return errTest
	}))
	got := a.post("/unauthorized")
	a.wantAnswer(got, 401, `{"error":"who?"}`)
	require.Equal(t, "Basic", got.Header.Get("WWW-Authenticate"))
	got = a.post("/late")
	a.wantAnswer(got, 500, `{"error":"internal"}`)
	require.Empty(t, got.Header.Get("Location"))
	require.Equal(t, []string{"1"}, got.Header.Values("X-Request-Id"))
	require.Equal(t, 405, a.send("PUT", "/late").StatusCode)
	require.Contains(t, a.send("PUT", "/late").Header.Get("Allow"), "POST")
}

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
			require.GreaterOrEqual(t, got.StatusCode, 500)
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

// Echo's router knows only its own context.
func TestMountedBeforeTheRouterNothingIsCommitted(t *testing.T) {
	t.Parallel()
	a := newApp(t)
	a.Pre(recovery(), echomw.Transaction(a.transactor))
	a.POST("/", a.writing(func(c echo.Context) error { return c.NoContent(http.StatusCreated) }))
	require.Equal(t, 500, a.post("/").StatusCode)
	a.want(0)
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
