package echomw_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/echomw"
	"github.com/outboxkit/outbox-go/outbox"
)

// unanswered are handlers whose error is rolled back and, by an error handler
// that writes nothing, not answered.
var unanswered = map[string]echo.HandlerFunc{
	"panics":                 func(echo.Context) error { panic(errTest) },
	"panics after a success": func(c echo.Context) error { _ = c.JSON(http.StatusCreated, "ok"); panic(errTest) },
	"reports":                func(c echo.Context) error { c.Error(errTest); return nil },
	"reports, then succeeds": func(c echo.Context) error { c.Error(errTest); return c.JSON(http.StatusCreated, "ok") },
	"reports, then flushes": func(c echo.Context) error {
		c.Error(errTest)
		_ = c.JSON(http.StatusCreated, "ok")
		c.Response().Flush()
		return nil
	},
	"reports, then overflows": func(c echo.Context) error {
		c.Error(errTest)
		return c.String(http.StatusCreated, strings.Repeat("ok", 1<<20))
	},
	"reports, then redirects": func(c echo.Context) error { c.Error(errTest); return c.Redirect(http.StatusSeeOther, "/ok") },
	"reports twice after a success": func(c echo.Context) error {
		_ = c.JSON(http.StatusCreated, "ok")
		c.Error(errTest)
		c.Error(errTest)
		return nil
	},
	"reports and returns": func(c echo.Context) error { c.Error(errTest); return errTest },
}

// net/http makes a 200 of a request that nobody answers, and a handler may go on
// after c.Error: neither is to say that a request succeeded which was rolled back.
func TestNoSuccessIsSentForAnErrorThatTheErrorHandlerKeepsSilentAbout(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		inside []echo.MiddlewareFunc
		silent func(err error) bool
		body   string
	}{
		"about all errors":           {outside(recovery()), func(error) bool { return true }, ""},
		"about all errors, and Gzip": {outside(middleware.Gzip(), recovery()), func(error) bool { return true }, ""},
		"about that very error":      {outside(recovery()), func(err error) bool { return err == errTest }, `{"error":"internal"}`}, //nolint:errorlint // itself, not what wraps it.
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newApp(t).transaction(nil, tc.inside...)
			answer := a.HTTPErrorHandler
			a.HTTPErrorHandler = func(err error, c echo.Context) {
				if !tc.silent(err) {
					answer(err, c)
				}
			}
			var rollbacks []string
			for handler := range unanswered {
				a.POST("/"+handler, a.writing(unanswered[handler]))
				for _, encoding := range []string{"identity", "gzip"} {
					got := a.post("/"+strings.ReplaceAll(handler, " ", "%20"), "Accept-Encoding", encoding)
					require.Equal(t, 500, got.StatusCode, handler)
					require.Equal(t, tc.body, got.body, handler)
					require.Empty(t, got.Header.Get("Location"), handler)
					rollbacks = append(rollbacks, "rollback")
					a.want(0, rollbacks...)
				}
			}
		})
	}
}

// A handler that streams after an error that was not answered is told to stop.
func TestAStreamAfterAnErrorThatWasNotAnsweredEnds(t *testing.T) {
	t.Parallel()
	a := newApp(t).transaction(nil)
	a.HTTPErrorHandler = func(error, echo.Context) {}
	var flushed, cause error
	a.POST("/", a.writing(func(c echo.Context) error {
		c.Error(errTest)
		flushed = http.NewResponseController(c.Response().Writer).Flush() // Echo's own response has no errors of it
		<-c.Request().Context().Done()
		cause = context.Cause(c.Request().Context())
		return nil
	}))
	a.wantAnswer(a.post("/"), 500, "")
	require.ErrorIs(t, flushed, errTest)
	require.ErrorContains(t, flushed, "not answered")
	require.ErrorIs(t, cause, errTest)
	require.NotErrorIs(t, flushed, outbox.ErrOutcomeUnknown)
	a.want(0, "rollback")
}

// An error handler may answer with 200, and flush that.
func TestAnErrorHandlerMayFlush(t *testing.T) {
	t.Parallel()
	a := newApp(t).transaction(nil, recovery())
	asked := 0
	a.HTTPErrorHandler = func(_ error, c echo.Context) {
		asked++
		_ = c.JSON(http.StatusOK, echo.Map{"jsonrpc": "2.0"})
		c.Response().Flush()
	}
	a.POST("/", a.writing(func(echo.Context) error { panic("boom") }))
	a.wantAnswer(a.post("/"), 200, `{"jsonrpc":"2.0"}`)
	require.Equal(t, 1, asked)
	a.want(0, "rollback")
}

// An error that is answered makes up for one before it that was not.
func TestALaterErrorMayBeAnswered(t *testing.T) {
	t.Parallel()
	a := newApp(t).transaction(nil, middleware.Gzip())
	answer := a.HTTPErrorHandler
	a.HTTPErrorHandler = func(err error, c echo.Context) {
		if !errors.Is(err, errTest) {
			answer(err, c)
		}
	}
	a.POST("/", a.writing(func(c echo.Context) error {
		_ = c.JSON(http.StatusCreated, "ok")
		c.Error(errTest)
		c.Error(echo.NewHTTPError(http.StatusConflict, "later"))
		return nil
	}))
	a.wantAnswer(a.post("/"), 409, `{"error":"later"}`)
	a.wantAnswer(gunzip(t, a.post("/", "Accept-Encoding", "gzip")), 409, `{"error":"later"}`)
	a.want(0, "rollback", "rollback")
}

// renderingContext answers errors itself.
type renderingContext struct {
	echo.Context
	render func(c echo.Context) error
}

func (r *renderingContext) Error(error) { _ = r.render(r.Context) }

// A context of the application's whose Error does not call the embedded one is
// known by its answer.
func TestAContextThatAnswersErrorsItself(t *testing.T) {
	t.Parallel()
	body := []byte("sorry")
	renders := map[string]func(c echo.Context) error{
		"Render":     func(c echo.Context) error { return c.Render(500, "error", nil) },
		"HTML":       func(c echo.Context) error { return c.HTML(500, "sorry") },
		"HTMLBlob":   func(c echo.Context) error { return c.HTMLBlob(500, body) },
		"String":     func(c echo.Context) error { return c.String(500, "sorry") },
		"JSON":       func(c echo.Context) error { return c.JSON(500, "sorry") },
		"JSONPretty": func(c echo.Context) error { return c.JSONPretty(500, "sorry", " ") },
		"JSONBlob":   func(c echo.Context) error { return c.JSONBlob(500, body) },
		"JSONP":      func(c echo.Context) error { return c.JSONP(500, "call", "sorry") },
		"JSONPBlob":  func(c echo.Context) error { return c.JSONPBlob(500, "call", body) },
		"XML":        func(c echo.Context) error { return c.XML(500, "sorry") },
		"XMLPretty":  func(c echo.Context) error { return c.XMLPretty(500, "sorry", " ") },
		"XMLBlob":    func(c echo.Context) error { return c.XMLBlob(500, body) },
		"Blob":       func(c echo.Context) error { return c.Blob(500, "text/plain", body) },
		"Stream":     func(c echo.Context) error { return c.Stream(500, "text/plain", strings.NewReader("sorry")) },
		"NoContent":  func(c echo.Context) error { return c.NoContent(500) },
		"JSON of what is none": func(c echo.Context) error {
			return c.JSON(500, func() {}) // nothing is written
		},
	}
	for where, mount := range map[string]func(a *app, own echo.MiddlewareFunc){
		"outside":                func(a *app, own echo.MiddlewareFunc) { a.transaction(outside(own), recovery()) },
		"inside":                 func(a *app, own echo.MiddlewareFunc) { a.transaction(nil, own, recovery()) },
		"inside, and Gzip there": func(a *app, own echo.MiddlewareFunc) { a.transaction(nil, own, middleware.Gzip(), recovery()) },
	} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			a := newApp(t)
			a.Renderer = renderer{}
			mount(a, func(next echo.HandlerFunc) echo.HandlerFunc {
				return func(c echo.Context) error {
					return next(&renderingContext{c, renders[c.QueryParam("render")]})
				}
			})
			a.POST("/", a.writing(func(c echo.Context) error {
				c.Response().Header().Set("Location", "/ok")
				_ = c.JSON(http.StatusCreated, "ok")
				panic("boom")
			}))
			var rollbacks []string
			for name := range renders {
				for _, encoding := range []string{"identity", "gzip"} {
					got := gunzip(t, a.post("/?render="+strings.ReplaceAll(name, " ", "%20"), "Accept-Encoding", encoding))
					require.Equal(t, 500, got.StatusCode, name)
					require.NotContains(t, got.body, "ok", name)
					if name != "NoContent" && name != "JSON of what is none" {
						require.Contains(t, got.body, "sorry", name)
					}
					require.Empty(t, got.Header.Get("Location"), name)
					rollbacks = append(rollbacks, "rollback")
					a.want(0, rollbacks...)
				}
			}
		})
	}
}

// What RollbackOn would commit is not taken back.
func TestAFailureThatIsCommittedIsAppendedAsWithoutTheMiddleware(t *testing.T) {
	t.Parallel()
	a := newApp(t).configured(echomw.TransactionConfig{RollbackOn: func(echo.Context, int, error) bool { return false }})
	a.POST("/", a.writing(func(c echo.Context) error {
		return errors.Join(c.String(http.StatusCreated, "ok"), c.String(http.StatusTeapot, " and not"))
	}))
	a.wantAnswer(a.post("/"), 201, "ok and not")
	a.want(1, "commit")
}

type renderer struct{}

func (renderer) Render(w io.Writer, _ string, _ any, _ echo.Context) error {
	_, err := io.WriteString(w, "sorry")
	return err
}
