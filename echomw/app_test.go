package echomw_test

import (
	"context"
	"database/sql"
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

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/echomw"
	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

var errTest = errors.New("a failure that the test made")

// app is an application behind a real server, with a real client.
type app struct {
	*echo.Echo
	t          *testing.T
	db         *sql.DB
	writer     *outbox.Writer
	record     *adaptertest.Record
	transactor outbox.Transactor
	exec       func(ctx context.Context, query string) error // in the transaction that ctx carries

	server *httptest.Server
	client *http.Client
}

// newApp is one on SQLite.
func newApp(t *testing.T) *app {
	t.Helper()
	db := testdb.Open(t, sqliteTarget())
	writer, record := adaptertest.Writer(t, db.DB, string(db.Kind))
	a := adaptertest.Adapter(t, db.DB, writer)
	return newAppOn(t, &app{db: db.DB, writer: writer, record: record, transactor: a, exec: execSQL(a)})
}

func sqliteTarget() testdb.Target { return adaptertest.Main()[2] }

func execSQL(a *sqltx.Adapter) func(ctx context.Context, query string) error {
	return func(ctx context.Context, query string) error {
		tx, ok := a.TxFrom(ctx)
		if !ok {
			return outbox.ErrNoTransaction
		}
		_, err := tx.ExecContext(ctx, query)
		return err
	}
}

func newAppOn(t *testing.T, a *app) *app {
	t.Helper()
	a.t, a.Echo = t, echo.New()
	a.Logger.SetOutput(io.Discard)
	a.StdLogger.SetOutput(io.Discard)
	a.HTTPErrorHandler = func(err error, c echo.Context) { // the application's own
		if c.Response().Committed {
			return
		}
		status, text := http.StatusInternalServerError, "internal"
		var httpError *echo.HTTPError
		var commit *echomw.CommitError
		switch {
		case errors.Is(err, outbox.ErrOutcomeUnknown) && errors.As(err, &commit):
			text = "unknown"
		case errors.As(err, &commit):
			text = "not committed"
		case errors.As(err, &httpError):
			status, text = httpError.Code, httpError.Message.(string)
		}
		_ = c.JSON(status, echo.Map{"error": text})
	}
	return a
}

// transaction mounts the middleware between others.
func (a *app) transaction(outside []echo.MiddlewareFunc, inside ...echo.MiddlewareFunc) *app {
	a.Use(outside...)
	a.Use(echomw.Transaction(a.transactor))
	a.Use(inside...)
	return a
}

// configured mounts the middleware with options.
func (a *app) configured(cfg echomw.TransactionConfig) *app {
	a.t.Helper()
	cfg.Transactor = a.transactor
	mw, err := cfg.ToMiddleware()
	require.NoError(a.t, err)
	a.Use(mw)
	return a
}

func outside(mw ...echo.MiddlewareFunc) []echo.MiddlewareFunc { return mw }

func recovery() echo.MiddlewareFunc {
	return middleware.RecoverWithConfig(middleware.RecoverConfig{DisablePrintStack: true})
}

func logging() echo.MiddlewareFunc {
	return middleware.LoggerWithConfig(middleware.LoggerConfig{Output: io.Discard}) //nolint:staticcheck // deprecated, and used.
}

// write writes an event in the request's transaction.
func (a *app) write(c echo.Context) error {
	_, err := a.writer.Write(c.Request().Context(), adaptertest.Event())
	return err
}

// writing is a handler that writes an event first.
func (a *app) writing(handler echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if err := a.write(c); err != nil {
			return err
		}
		return handler(c)
	}
}

// failingCommit makes the request's transaction one that cannot commit.
func (a *app) failingCommit(c echo.Context) error {
	return a.exec(c.Request().Context(), "INSERT INTO child (parent) VALUES (1)")
}

// withDeferredConstraint makes the tables for failingCommit.
func (a *app) withDeferredConstraint() *app {
	a.t.Helper()
	adaptertest.Exec(a.t, a.db, "CREATE TABLE parent (id INT PRIMARY KEY)",
		"CREATE TABLE child (parent INT NOT NULL REFERENCES parent (id) DEFERRABLE INITIALLY DEFERRED)")
	return a
}

func (a *app) start() {
	if a.server != nil {
		return
	}
	a.server = httptest.NewUnstartedServer(a.Echo)
	a.server.Config.ErrorLog = a.StdLogger
	a.server.Start()
	a.client = &http.Client{
		Transport:     &http.Transport{DisableCompression: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Timeout:       30 * time.Second,
	}
	a.t.Cleanup(func() {
		a.client.CloseIdleConnections()
		a.server.Close()
	})
}

// answer is what the client saw.
type answer struct {
	*http.Response
	raw  []byte
	body string // without space around it
	err  error  // of reading the body
}

// send sends a request without a body; headers are names and values.
func (a *app) send(method, path string, headers ...string) answer {
	a.t.Helper()
	a.start()
	request, err := http.NewRequestWithContext(a.t.Context(), method, a.server.URL+path, nil)
	require.NoError(a.t, err)
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := a.client.Do(request)
	require.NoError(a.t, err)
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	return answer{Response: response, raw: body, body: strings.TrimSpace(string(body)), err: err}
}

func (a *app) post(path string, headers ...string) answer {
	a.t.Helper()
	return a.send(http.MethodPost, path, headers...)
}

// wantAnswer checks status and body.
func (a *app) wantAnswer(got answer, status int, body string) {
	a.t.Helper()
	require.NoError(a.t, got.err)
	require.Equal(a.t, body, got.body)
	require.Equal(a.t, status, got.StatusCode)
}

// want checks how many events are in the table, and the outcomes that the
// writer's hooks received, in any order.
func (a *app) want(written int, outcomes ...string) {
	a.t.Helper()
	require.Equal(a.t, written, adaptertest.Written(a.t, a.db), "events in the table")
	require.ElementsMatch(a.t, outcomes, a.record.Outcomes())
}
