package ginmw_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/ginmw"
	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/internal/testing/webtest"
	"github.com/outboxkit/outbox-go/outbox"
)

var errTest = errors.New("a failure that the test made")

// app is an engine with a transaction for each request, on SQLite.
type app struct {
	*gin.Engine
	t          *testing.T
	db         *testdb.DB
	writer     *outbox.Writer
	record     *adaptertest.Record
	transactor outbox.Transactor
}

func appOn(t *testing.T, engine *gin.Engine) *app {
	t.Helper()
	db := testdb.Open(t, adaptertest.Main()[2])
	writer, record := adaptertest.Writer(t, db.DB, string(db.Kind))
	return &app{engine, t, db, writer, record, adaptertest.Adapter(t, db.DB, writer)}
}

// writing is a handler that writes an event first.
func (a *app) writing(handler gin.HandlerFunc) gin.HandlerFunc {
	return func(c *gin.Context) {
		if _, err := a.writer.Write(c.Request.Context(), adaptertest.Event()); err != nil {
			_ = c.AbortWithError(http.StatusTeapot, err)
			return
		}
		handler(c)
	}
}

func (a *app) post(path string) *httptest.ResponseRecorder {
	a.t.Helper()
	recorder := httptest.NewRecorder()
	a.ServeHTTP(recorder, httptest.NewRequestWithContext(a.t.Context(), http.MethodPost, path, nil))
	return recorder
}

// is checks an answer, and what became of the request's transaction.
func (a *app) is(path string, status int, body, outcome string) {
	a.t.Helper()
	before, written := len(a.record.Outcomes()), adaptertest.Written(a.t, a.db.DB)
	got := a.post(path)
	require.Equal(a.t, body, got.Body.String(), path)
	require.Equal(a.t, status, got.Code, path)
	require.Equal(a.t, []string{outcome}, a.record.Outcomes()[before:], path)
	if outcome == "commit" {
		written++
	}
	require.Equal(a.t, written, adaptertest.Written(a.t, a.db.DB), path)
}

// habits are handlers in gin's manner.
var habits = map[string]gin.HandlerFunc{
	"/abort-after-success":      func(c *gin.Context) { c.String(http.StatusCreated, "ok"); c.Abort() },
	"/abort":                    func(c *gin.Context) { c.Abort() },
	"/status":                   func(c *gin.Context) { c.Status(http.StatusAccepted) },
	"/abort-with-status":        func(c *gin.Context) { c.AbortWithStatus(http.StatusForbidden) },
	"/abort-with-json":          func(c *gin.Context) { c.AbortWithStatusJSON(http.StatusConflict, gin.H{"no": 1}) },
	"/abort-with-error":         func(c *gin.Context) { _ = c.AbortWithError(http.StatusBadRequest, errTest) },
	"/error":                    func(c *gin.Context) { _ = c.Error(errTest) },
	"/error-after-success":      func(c *gin.Context) { c.String(http.StatusCreated, "ok"); _ = c.Error(errTest) },
	"/error-after-failure":      func(c *gin.Context) { c.String(http.StatusConflict, "no"); _ = c.Error(errTest) },
	"/status-and-error":         func(c *gin.Context) { c.Status(http.StatusGone); _ = c.Error(errTest) },
	"/success-status-and-error": func(c *gin.Context) { c.Status(http.StatusAccepted); _ = c.Error(errTest) },
	"/panic":                    func(*gin.Context) { panic("boom") },
	"/panic-after-success":      func(c *gin.Context) { c.String(http.StatusCreated, "ok"); panic("boom") },
}

func TestGinsHabits(t *testing.T) {
	t.Parallel()
	a := appOn(t, gin.New())
	a.Use(gin.RecoveryWithWriter(new(bytes.Buffer)), ginmw.Transaction(a.transactor))
	for path, handler := range habits {
		a.POST(path, a.writing(handler))
	}
	a.is("/abort-after-success", 201, "ok", "commit")
	a.is("/abort", 200, "", "commit")
	a.is("/status", 202, "", "commit")
	a.is("/abort-with-status", 403, "", "rollback")
	a.is("/abort-with-json", 409, `{"no":1}`, "rollback")
	a.is("/abort-with-error", 400, "", "rollback")
	a.is("/error", 500, "", "rollback")
	a.is("/error-after-success", 500, "", "rollback")
	a.is("/error-after-failure", 409, "no", "rollback")
	a.is("/status-and-error", 410, "", "rollback")
	a.is("/success-status-and-error", 500, "", "rollback")
	a.is("/panic", 500, "", "rollback")
	a.is("/panic-after-success", 500, "", "rollback")
}

// A middleware that answers errors works on either side.
func TestAMiddlewareThatAnswersErrors(t *testing.T) {
	t.Parallel()
	render := func(c *gin.Context) {
		c.Next()
		if len(c.Errors) > 0 && !c.Writer.Written() {
			c.String(http.StatusUnprocessableEntity, "rendered %v", c.Errors.Last().Err)
		}
	}
	for _, place := range []string{"outside", "inside"} {
		t.Run(place, func(t *testing.T) {
			t.Parallel()
			a := appOn(t, gin.New())
			a.Use(gin.RecoveryWithWriter(new(bytes.Buffer)))
			if place == "outside" {
				a.Use(render, ginmw.Transaction(a.transactor))
			} else {
				a.Use(ginmw.Transaction(a.transactor), render)
			}
			for path, handler := range habits {
				a.POST(path, a.writing(handler))
			}
			a.is("/status", 202, "", "commit")
			a.is("/abort-with-error", 400, "", "rollback")
			a.is("/error", 422, "rendered "+errTest.Error(), "rollback")
			if place == "outside" {
				a.is("/error-after-success", 422, "rendered "+errTest.Error(), "rollback")
			} else {
				a.is("/error-after-success", 500, "", "rollback")
			}
		})
	}
}

// An error beside a success may be meant for the log.
func TestRollbackOnMayCommitBesideAnError(t *testing.T) {
	t.Parallel()
	a := appOn(t, gin.New())
	mw, err := ginmw.TransactionConfig{Transactor: a.transactor, RollbackOn: func(_ *gin.Context, status int, err error) bool {
		return status >= 500 || err != nil && !errors.Is(err, errTest)
	}}.ToMiddleware()
	require.NoError(t, err)
	a.Use(mw)
	for path, handler := range habits {
		a.POST(path, a.writing(handler))
	}
	a.is("/error-after-success", 201, "ok", "commit")
	a.is("/error-after-failure", 409, "no", "commit")
	a.is("/error", 500, "", "rollback")
}

// A failed commit is on the context, for a middleware outside.
func TestAFailedCommitIsOnTheContext(t *testing.T) {
	t.Parallel()
	a := appOn(t, gin.New())
	var seen []*gin.Error
	var loud gin.ResponseWriter
	a.Use(func(c *gin.Context) {
		request, writer := c.Request, c.Writer
		_ = c.Error(errors.New("an earlier error, of no consequence"))
		c.Next()
		seen = c.Errors
		require.Same(t, request, c.Request)
		require.Same(t, writer, c.Writer)
		require.False(t, c.Writer.Written())
		require.Equal(t, 500, c.Writer.Status())
	}, ginmw.Transaction(a.transactor))
	a.POST("/", a.writing(func(c *gin.Context) {
		loud = c.Writer
		err := outbox.InTx(c.Request.Context(), a.transactor, func(context.Context) error { return nil })
		scope, _ := outbox.ScopeFromContext(c.Request.Context(), a.writer.Source())
		_, dropped := scope.ExecContext(c.Request.Context(), "PRAGMA defer_foreign_keys = ON")
		_, doomed := scope.ExecContext(c.Request.Context(), "INSERT INTO child (parent) VALUES (1)")
		if err := errors.Join(err, dropped, doomed); err != nil {
			_ = c.Error(err)
			return
		}
		c.JSON(http.StatusCreated, gin.H{"ok": true})
		require.Equal(t, 201, c.Writer.Status())
		require.Equal(t, 11, c.Writer.Size())
	}))
	adaptertest.Exec(t, a.db.DB, "CREATE TABLE parent (id INT PRIMARY KEY)",
		"CREATE TABLE child (parent INT NOT NULL REFERENCES parent (id) DEFERRABLE INITIALLY DEFERRED)")
	a.is("/", 500, "", "rollback")
	var commit *ginmw.CommitError
	require.Len(t, seen, 2)
	require.ErrorAs(t, seen[1].Err, &commit)
	require.Equal(t, "not committed", webtest.Text(seen[1].Err))
	_, err := loud.WriteString("late")
	require.Error(t, err)
}

// Paths without a route, and gin's own answers, are as without the middleware.
func TestGinsOwnAnswers(t *testing.T) {
	t.Parallel()
	a := appOn(t, gin.New())
	a.HandleMethodNotAllowed = true
	a.Use(ginmw.Transaction(a.transactor))
	a.GET("/", func(c *gin.Context) { c.Status(http.StatusOK) })
	require.Equal(t, "404 page not found", a.post("/nowhere").Body.String())
	require.Equal(t, 405, a.post("/").Code)
	require.Empty(t, a.record.Outcomes())
}

func TestTheConfigIsChecked(t *testing.T) {
	t.Parallel()
	_, err := ginmw.TransactionConfig{MaxBuffer: -1}.ToMiddleware()
	require.ErrorContains(t, err, "TransactionConfig.Transactor is required")
	require.ErrorContains(t, err, "TransactionConfig.MaxBuffer is -1")
	require.Panics(t, func() { ginmw.Transaction(nil) })
	require.Panics(t, func() { ginmw.Health(ginmw.HealthConfig{}) })
	require.Panics(t, func() { ginmw.Admin(nil, nil, ginmw.Access{}) })
	require.Panics(t, func() { ginmw.Admin(gin.New(), nil, ginmw.Access{}) })
}

// refused is PostgreSQL's serialization failure.
type refused struct{}

func (refused) Error() string    { return "refused" }
func (refused) SQLState() string { return "40001" }

// For another attempt, the context is as it was before the first, and the handlers outside do not run
// again.
func TestAnotherAttemptFindsTheContextAsItWas(t *testing.T) {
	t.Parallel()
	a := appOn(t, gin.New())
	mw, err := ginmw.TransactionConfig{Transactor: a.transactor, Retries: 3}.ToMiddleware()
	require.NoError(t, err)
	var outside, inside, handled int
	a.Use(func(c *gin.Context) {
		outside++
		_ = c.Error(errors.New("an earlier error, of no consequence"))
		c.Set("who", "outside")
		c.Next()
		require.False(t, c.IsAborted())
		require.Len(t, c.Errors, 1)
	}, mw, func(c *gin.Context) {
		inside++
		c.Next()
		require.Equal(t, handled, inside)
	})
	a.POST("/orders/:id", func(c *gin.Context) {
		handled++
		require.Equal(t, "7", c.Param("id"))
		require.Equal(t, "1", c.Query("q"))
		require.Len(t, c.Errors, 1)
		require.Equal(t, "outside", c.GetString("who"))
		_, set := c.Get("attempt")
		require.False(t, set)
		c.Set("attempt", handled)
		c.Set("who", "inside")
		c.Header("Attempt", "x")
		switch handled {
		case 1:
			_ = c.Error(refused{})
		case 2:
			_ = c.AbortWithError(http.StatusServiceUnavailable, refused{})
		default:
			c.String(http.StatusCreated, "ok")
		}
	})
	got := a.post("/orders/7?q=1")
	require.Equal(t, 201, got.Code)
	require.Equal(t, "ok", got.Body.String())
	require.Equal(t, []string{"x"}, got.Header()["Attempt"])
	require.Equal(t, []int{1, 3, 3}, []int{outside, inside, handled})
}
