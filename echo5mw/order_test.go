package echo5mw_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/echo5mw"
	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

var errTest = errors.New("a failure that the test made")

// app is an application with a transaction for each request, on SQLite.
type app struct {
	*echo.Echo
	t          *testing.T
	db         *testdb.DB
	writer     *outbox.Writer
	record     *adaptertest.Record
	transactor outbox.Transactor
}

func newApp(t *testing.T) *app {
	t.Helper()
	db := testdb.Open(t, adaptertest.Main()[2])
	writer, record := adaptertest.Writer(t, db.DB, string(db.Kind))
	return &app{newEcho(), t, db, writer, record, adaptertest.Adapter(t, db.DB, writer)}
}

// transaction mounts the middleware between others.
func (a *app) transaction(outside []echo.MiddlewareFunc, inside ...echo.MiddlewareFunc) *app {
	a.Use(outside...)
	a.Use(echo5mw.Transaction(a.transactor))
	a.Use(inside...)
	return a
}

func outside(mw ...echo.MiddlewareFunc) []echo.MiddlewareFunc { return mw }

func recovery() echo.MiddlewareFunc {
	return middleware.RecoverWithConfig(middleware.RecoverConfig{DisablePrintStack: true})
}

// logging is echo's logger, which answers errors itself.
func logging() echo.MiddlewareFunc {
	return middleware.RequestLoggerWithConfig(middleware.RequestLoggerConfig{
		HandleError: true, LogStatus: true, LogValuesFunc: func(*echo.Context, middleware.RequestLoggerValues) error { return nil },
	})
}

// plain is a middleware of net/http.
func plain(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(w, r) })
}

func (a *app) write(c *echo.Context) error {
	_, err := a.writer.Write(c.Request().Context(), adaptertest.Event())
	return err
}

// writing is a handler that writes an event first.
func (a *app) writing(handler echo.HandlerFunc) echo.HandlerFunc {
	return func(c *echo.Context) error { return errors.Join(a.write(c), handler(c)) }
}

// post sends a request, and undoes what Gzip did.
func (a *app) post(path, encoding string) (status int, body string) {
	a.t.Helper()
	recorder := httptest.NewRecorder()
	request := httptest.NewRequestWithContext(a.t.Context(), http.MethodPost, path, nil)
	request.Header.Set("Accept-Encoding", encoding)
	a.ServeHTTP(recorder, request)
	text := recorder.Body.Bytes()
	if recorder.Header().Get("Content-Encoding") == "gzip" {
		reader, err := gzip.NewReader(bytes.NewReader(text))
		require.NoError(a.t, err)
		text, err = io.ReadAll(reader)
		require.NoError(a.t, err)
	}
	return recorder.Code, strings.TrimSpace(string(text))
}

func (a *app) want(written int, outcomes ...string) {
	a.t.Helper()
	require.Equal(a.t, written, adaptertest.Written(a.t, a.db.DB), "events in the table")
	require.ElementsMatch(a.t, outcomes, a.record.Outcomes())
}

// Recover and RequestLogger inside answer errors themselves: the status that they
// wrote rolls back.
func TestErrorsAnsweredInsideAndOutsideRollBack(t *testing.T) {
	t.Parallel()
	short := middleware.GzipWithConfig(middleware.GzipConfig{MinLength: 1000})
	for order, mount := range map[string]func(a *app){
		"Recover outside":                func(a *app) { a.transaction(outside(recovery())) },
		"Logger and Recover outside":     func(a *app) { a.transaction(outside(logging(), recovery())) },
		"Recover inside":                 func(a *app) { a.transaction(nil, recovery()) },
		"Logger and Recover inside":      func(a *app) { a.transaction(nil, logging(), recovery()) },
		"Recover on both sides":          func(a *app) { a.transaction(outside(recovery()), recovery()) },
		"Gzip outside":                   func(a *app) { a.transaction(outside(recovery(), middleware.Gzip())) },
		"Gzip outside, Recover inside":   func(a *app) { a.transaction(outside(middleware.Gzip()), recovery()) },
		"Gzip inside":                    func(a *app) { a.transaction(outside(recovery()), middleware.Gzip()) },
		"Gzip inside, then Recover":      func(a *app) { a.transaction(nil, middleware.Gzip(), recovery()) },
		"Recover inside, then Gzip":      func(a *app) { a.transaction(nil, recovery(), middleware.Gzip()) },
		"Gzip with a minimum, inside":    func(a *app) { a.transaction(nil, short, logging(), recovery()) },
		"a net/http middleware inside":   func(a *app) { a.transaction(nil, recovery(), echo.WrapMiddleware(plain)) },
		"Recover in a net/http one":      func(a *app) { a.transaction(nil, echo.WrapMiddleware(plain), recovery()) },
		"a net/http middleware outside":  func(a *app) { a.transaction(outside(recovery(), echo.WrapMiddleware(plain))) },
		"before the router":              func(a *app) { a.Pre(recovery(), echo5mw.Transaction(a.transactor)) },
		"before the router and after it": func(a *app) { a.Pre(recovery(), echo5mw.Transaction(a.transactor)); a.transaction(nil, recovery()) },
	} {
		t.Run(order, func(t *testing.T) {
			t.Parallel()
			a := newApp(t)
			mount(a)
			failures := map[string]echo.HandlerFunc{
				"/panics":  func(*echo.Context) error { panic("boom") },
				"/error":   func(*echo.Context) error { panic(errTest) },
				"/fails":   func(*echo.Context) error { return errTest },
				"/answers": func(c *echo.Context) error { c.Echo().HTTPErrorHandler(c, errTest); return nil },
			}
			for path, handler := range failures {
				a.POST(path, a.writing(handler))
			}
			a.POST("/succeeds", a.writing(func(c *echo.Context) error { return c.JSON(http.StatusCreated, map[string]bool{"ok": true}) }))
			var rollbacks []string
			for path := range failures {
				for _, encoding := range []string{"identity", "gzip"} {
					status, body := a.post(path, encoding)
					require.Equal(t, "failed", body, path)
					require.Equal(t, 500, status, path)
					rollbacks = append(rollbacks, "rollback")
					a.want(0, rollbacks...)
				}
			}
			status, body := a.post("/succeeds", "gzip")
			require.Equal(t, `{"ok":true}`, body)
			require.Equal(t, 201, status)
			a.want(1, append(rollbacks, "commit")...)
		})
	}
}

// A success that was written is dropped when the handler then fails, a failure
// stays, and the outer middlewares get the error.
func TestAnErrorAfterAnAnswer(t *testing.T) {
	t.Parallel()
	for name, inside := range map[string][]echo.MiddlewareFunc{"alone": nil, "Gzip inside": {middleware.Gzip()}, "a net/http one inside": {echo.WrapMiddleware(plain)}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var seen error
			a := newApp(t)
			a.transaction(outside(recovery(), func(next echo.HandlerFunc) echo.HandlerFunc {
				return func(c *echo.Context) error {
					seen = next(c)
					response, _ := echo.UnwrapResponse(c.Response())
					if !response.Committed || response.Status < 400 {
						panic("the answer is unknown outside")
					}
					return seen
				}
			}), inside...)
			a.POST("/late", a.writing(func(c *echo.Context) error {
				_ = c.JSON(http.StatusOK, map[string]bool{"ok": true})
				return errTest
			}))
			a.POST("/rendered", a.writing(func(c *echo.Context) error {
				_ = c.JSON(http.StatusUnprocessableEntity, map[string]string{"field": "quantity"})
				return errTest
			}))
			status, body := a.post("/late", "gzip")
			require.Equal(t, "failed", body)
			require.Equal(t, 500, status)
			require.ErrorIs(t, seen, errTest)
			status, body = a.post("/rendered", "gzip")
			require.Equal(t, `{"field":"quantity"}`, body)
			require.Equal(t, 422, status)
			a.want(0, "rollback", "rollback")
		})
	}
}

// An error handler may answer with 200, as JSON-RPC does; a returned error rolls
// back with any status.
func TestAnErrorHandlerMayAnswerWithASuccess(t *testing.T) {
	t.Parallel()
	a := newApp(t).transaction(outside(recovery()))
	a.HTTPErrorHandler = func(c *echo.Context, _ error) {
		if response, _ := echo.UnwrapResponse(c.Response()); !response.Committed {
			_ = c.String(http.StatusOK, "an error")
		}
	}
	a.POST("/", a.writing(func(*echo.Context) error { return errTest }))
	status, body := a.post("/", "")
	require.Equal(t, "an error", body)
	require.Equal(t, 200, status)
	a.want(0, "rollback")
}

// The middlewares outside find request and response as they were. The handler's
// hooks run before the commit, those of the middlewares outside after it.
func TestWhatTheMiddlewaresOutsideSee(t *testing.T) {
	t.Parallel()
	a := newApp(t)
	var hooks []string
	a.transaction(outside(recovery(), func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			request, response := c.Request(), c.Response()
			own, _ := echo.UnwrapResponse(response)
			own.Before(func() { hooks = append(hooks, strings.Join(append([]string{"outside"}, a.record.Outcomes()...), " ")) })
			defer func() {
				require.Same(t, request, c.Request())
				require.Same(t, response, c.Response())
				require.ErrorIs(t, a.write(c), outbox.ErrNoTransaction)
				require.ErrorIs(t, echo5mw.OnCommit(c, func(context.Context) {}), outbox.ErrNoTransaction)
			}()
			return next(c)
		}
	}))
	a.POST("/good", a.writing(func(c *echo.Context) error {
		own, _ := echo.UnwrapResponse(c.Response())
		own.Before(func() { hooks = append(hooks, strings.Join(append([]string{"inside"}, a.record.Outcomes()...), " ")) })
		return c.NoContent(http.StatusCreated)
	}))
	a.POST("/panic", a.writing(func(*echo.Context) error { panic("boom") }))
	status, _ := a.post("/good", "")
	require.Equal(t, 201, status)
	require.Equal(t, []string{"inside", "outside commit"}, hooks)
	status, body := a.post("/panic", "")
	require.Equal(t, "failed", body)
	require.Equal(t, 500, status)
	a.want(1, "commit", "rollback")
}

// ContextTimeout inside answers 503; outside, the error was answered already.
func TestTimeouts(t *testing.T) {
	t.Parallel()
	timeout := middleware.ContextTimeout(2 * time.Second) // which begins before the transaction does
	for name, tc := range map[string]struct {
		mount  func(a *app)
		status int
	}{
		"outside": {func(a *app) { a.transaction(outside(timeout)) }, 500},
		"inside":  {func(a *app) { a.transaction(nil, timeout) }, 500}, // as this app answers every error
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newApp(t)
			tc.mount(a)
			a.POST("/", func(c *echo.Context) error {
				if err := a.write(c); err != nil {
					return err
				}
				_, _ = c.Response().Write([]byte("unheard"))
				<-c.Request().Context().Done()
				return c.Request().Context().Err()
			})
			status, body := a.post("/", "")
			require.Equal(t, "failed", body)
			require.Equal(t, tc.status, status)
			require.Eventually(t, func() bool { return len(a.record.Outcomes()) == 1 }, 20*time.Second, time.Millisecond)
			a.want(0, "rollback")
		})
	}
}

// RollbackOn gets the status that was answered, and the error that was returned.
func TestRollbackOnGetsTheError(t *testing.T) {
	t.Parallel()
	a := newApp(t)
	var asked error
	mw, err := echo5mw.TransactionConfig{Transactor: a.transactor, RollbackOn: func(_ *echo.Context, status int, err error) bool {
		asked = err
		return status != 500
	}}.ToMiddleware()
	require.NoError(t, err)
	a.POST("/", a.writing(func(*echo.Context) error { return errTest }), mw)
	status, _ := a.post("/", "")
	require.Equal(t, 500, status)
	require.ErrorIs(t, asked, errTest)
	a.want(1, "commit")
}

func TestTheConfigIsChecked(t *testing.T) {
	t.Parallel()
	_, err := echo5mw.TransactionConfig{MaxBuffer: -1}.ToMiddleware()
	require.ErrorContains(t, err, "TransactionConfig.Transactor is required")
	require.ErrorContains(t, err, "TransactionConfig.MaxBuffer is -1")
	_, err = echo5mw.HealthConfig{Timeout: -1}.ToHandler()
	require.ErrorContains(t, err, "HealthConfig.Outbox is required")
	require.Panics(t, func() { echo5mw.Transaction(nil) })
	require.Panics(t, func() { echo5mw.Health(echo5mw.HealthConfig{}) })
	require.Panics(t, func() { echo5mw.Admin(nil, nil, echo5mw.Access{}) })
	require.Panics(t, func() { echo5mw.Admin(echo.New().Group("/x"), nil, echo5mw.Access{}) })
}
