package echomw_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/echomw"
)

// failures are handlers that fail and have not answered.
var failures = map[string]echo.HandlerFunc{
	"panics":               func(echo.Context) error { panic("boom") },
	"panics with an error": func(echo.Context) error { panic(errTest) },
	"fails":                func(echo.Context) error { return errTest },
	"answers itself":       func(c echo.Context) error { c.Error(errTest); return nil },
}

// lateFailures are handlers that fail after they have written a success.
var lateFailures = map[string]echo.HandlerFunc{
	"panics": func(c echo.Context) error { _ = c.JSON(http.StatusOK, echo.Map{"ok": true}); panic("boom") },
	"fails":  func(c echo.Context) error { _ = c.JSON(http.StatusOK, echo.Map{"ok": true}); return errTest },
	"fails, with much text": func(c echo.Context) error {
		_ = c.String(http.StatusOK, strings.Repeat("success ", 50_000))
		return errTest
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

// Recover and Logger call the error handler themselves and return nil: the
// status that it wrote rolls back.
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

// A success that was written is dropped when the handler then fails, also when
// an inner Gzip has compressed it.
func TestAFailureReplacesASuccess(t *testing.T) {
	t.Parallel()
	for order, mount := range map[string]func(a *app){
		"alone":                   func(a *app) { a.transaction(outside(recovery())) },
		"Gzip inside":             func(a *app) { a.transaction(outside(recovery()), middleware.Gzip()) },
		"Gzip outside":            func(a *app) { a.transaction(outside(middleware.Gzip(), recovery())) },
		"a net/http one inside":   func(a *app) { a.transaction(outside(recovery()), echo.WrapMiddleware(plain)) },
		"a context of the app's":  func(a *app) { a.transaction(outside(recovery(), ownContexts)) },
		"the transaction, doubly": func(a *app) { a.transaction(outside(recovery(), echomw.Transaction(a.transactor))) },
	} {
		t.Run(order, func(t *testing.T) {
			t.Parallel()
			a := newApp(t)
			mount(a)
			var rollbacks []string
			for name, handler := range lateFailures {
				a.POST("/"+name, a.writing(handler))
				for _, encoding := range []string{"identity", "gzip"} {
					got := gunzip(t, a.post("/"+strings.ReplaceAll(name, " ", "%20"), "Accept-Encoding", encoding))
					a.wantAnswer(got, 500, `{"error":"internal"}`)
					rollbacks = append(rollbacks, "rollback")
					a.want(0, rollbacks...)
				}
			}
		})
	}
}

// Under a Recover inside, an error handler finds a success that was written and
// leaves it: it is committed and sent.
func TestASuccessThatTheErrorHandlerLeavesIsCommitted(t *testing.T) {
	t.Parallel()
	a := newApp(t).transaction(nil, recovery())
	a.POST("/", a.writing(lateFailures["panics"]))
	a.wantAnswer(a.post("/"), 200, `{"ok":true}`)
	a.want(1, "commit")
}

// An error that a handler has rendered itself is sent once.
func TestAnErrorThatWasRenderedStays(t *testing.T) {
	t.Parallel()
	a := newApp(t).transaction(nil, logging(), middleware.Gzip(), recovery())
	a.POST("/", a.writing(func(c echo.Context) error {
		_ = c.JSON(http.StatusUnprocessableEntity, echo.Map{"field": "quantity"})
		return errTest
	}))
	for _, encoding := range []string{"identity", "gzip"} {
		a.wantAnswer(gunzip(t, a.post("/", "Accept-Encoding", encoding)), 422, `{"field":"quantity"}`)
	}
	a.want(0, "rollback", "rollback")
}

// An error handler may answer with 200, as JSON-RPC does, and flush that: an
// error that reaches the middleware rolls back with any status.
func TestAnErrorHandlerMayAnswerWithASuccess(t *testing.T) {
	t.Parallel()
	a := newApp(t).transaction(outside(recovery()))
	a.HTTPErrorHandler = func(_ error, c echo.Context) {
		if !c.Response().Committed {
			_ = c.JSON(http.StatusOK, echo.Map{"jsonrpc": "2.0", "error": 1})
			if c.QueryParam("flush") != "" {
				c.Response().Flush()
			}
		}
	}
	var rollbacks []string
	for _, failing := range []map[string]echo.HandlerFunc{lateFailures, {"panics at once": failures["panics"], "fails at once": failures["fails"]}} {
		for name, handler := range failing {
			a.POST("/"+name, a.writing(handler))
			for _, query := range []string{"", "?flush=1"} {
				a.wantAnswer(a.post("/"+strings.ReplaceAll(name, " ", "%20")+query), 200, `{"error":1,"jsonrpc":"2.0"}`)
				rollbacks = append(rollbacks, "rollback")
				a.want(0, rollbacks...)
			}
		}
	}
}

// Without an answer, net/http would send a 200.
func TestAnErrorHandlerThatWritesNothing(t *testing.T) {
	t.Parallel()
	a := newApp(t).withDeferredConstraint().transaction(nil)
	a.HTTPErrorHandler = func(error, echo.Context) {}
	a.POST("/fails", a.writing(failures["fails"]))
	a.POST("/late", a.writing(lateFailures["fails"]))
	a.POST("/commit", func(c echo.Context) error { return errors.Join(a.failingCommit(c), c.NoContent(http.StatusCreated)) })
	for _, path := range []string{"/fails", "/late", "/commit"} {
		a.wantAnswer(a.post(path), 500, "")
	}
	a.want(0, "rollback", "rollback") // failingCommit writes no event
}

// The error handler is called inside, and the error goes on to the middlewares
// outside, which see both.
func TestTheErrorGoesOnToTheMiddlewaresOutside(t *testing.T) {
	t.Parallel()
	a := newApp(t).withDeferredConstraint()
	var seen error
	a.transaction(outside(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			seen = next(c)
			require.True(t, c.Response().Committed)
			require.Equal(t, http.StatusInternalServerError, c.Response().Status)
			return seen
		}
	}))
	asked := 0
	answer := a.HTTPErrorHandler
	a.HTTPErrorHandler = func(err error, c echo.Context) { // set after the middleware
		asked++
		answer(err, c)
	}
	a.POST("/fails", a.writing(failures["fails"]))
	a.POST("/commit", func(c echo.Context) error { return errors.Join(a.failingCommit(c), c.NoContent(http.StatusCreated)) })
	a.wantAnswer(a.post("/fails"), 500, `{"error":"internal"}`)
	require.ErrorIs(t, seen, errTest)
	a.wantAnswer(a.post("/commit"), 500, `{"error":"not committed"}`)
	var commit *echomw.CommitError
	require.ErrorAs(t, seen, &commit)
	require.Equal(t, 4, asked, "by the middleware, and by Echo, which finds it answered")
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
