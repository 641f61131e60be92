package fibermw_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/adaptor"
	"github.com/gofiber/fiber/v3/middleware/timeout"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/fibermw"
	"github.com/outboxkit/outbox-go/httptx"
	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/internal/testing/webtest"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

var errTest = errors.New("a failure that the test made")

// shop is an app on SQLite, whose routes run in transactions.
type shop struct {
	*fiber.App
	t          *testing.T
	db         *testdb.DB
	writer     *outbox.Writer
	record     *adaptertest.Record
	transactor outbox.Transactor
	client     *http.Client
	url        string
}

func openShop(t *testing.T, app *fiber.App) *shop {
	t.Helper()
	db := testdb.Open(t, adaptertest.Main()[2])
	adaptertest.Exec(t, db.DB, "CREATE TABLE parent (id INT PRIMARY KEY)",
		"CREATE TABLE child (parent INT NOT NULL REFERENCES parent (id) DEFERRABLE INITIALLY DEFERRED)")
	writer, record := adaptertest.Writer(t, db.DB, string(db.Kind))
	transport := new(http.Transport)
	t.Cleanup(transport.CloseIdleConnections)
	client := &http.Client{
		Transport: transport, Timeout: 30 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return &shop{app, t, db, writer, record, adaptertest.Adapter(t, db.DB, writer), client, ""}
}

func (s *shop) listen() { s.url = listen(s.t, s.App) }

// write is a handler that writes an event and goes on.
func (s *shop) write(c fiber.Ctx) error {
	if _, err := s.writer.Write(c.Context(), adaptertest.Event()); err != nil {
		return err
	}
	return c.Next()
}

// doom is a handler that makes the transaction unable to commit.
func (s *shop) doom(c fiber.Ctx) error {
	scope, _ := outbox.ScopeFromContext(c.Context(), s.writer.Source())
	if _, err := scope.ExecContext(c.Context(), "INSERT INTO child (parent) VALUES (1)"); err != nil {
		return err
	}
	return c.Next()
}

// answer is the answer that the client saw.
type answer struct {
	*http.Response
	body string
}

func (s *shop) do(request *http.Request) answer {
	s.t.Helper()
	response, err := s.client.Do(request)
	require.NoError(s.t, err)
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	require.NoError(s.t, err)
	return answer{response, string(body)}
}

func (s *shop) request(method, path, body string, headers ...string) *http.Request {
	s.t.Helper()
	request, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
	require.NoError(s.t, err)
	for i := 0; i < len(headers); i += 2 {
		request.Header.Add(headers[i], headers[i+1])
	}
	return request
}

func (s *shop) post(path string, headers ...string) answer {
	s.t.Helper()
	return s.do(s.request(http.MethodPost, path, "", headers...))
}

// is checks an answer, and what became of the request's transaction.
func (s *shop) is(path string, status int, body string, outcomes ...string) answer {
	s.t.Helper()
	before, written := len(s.record.Outcomes()), adaptertest.Written(s.t, s.db.DB)
	got := s.post(path)
	require.Equal(s.t, body, got.body, path)
	require.Equal(s.t, status, got.StatusCode, path)
	require.Equal(s.t, append([]string{}, outcomes...), s.record.Outcomes()[before:], path)
	for _, outcome := range outcomes {
		if outcome == "commit" {
			written++
		}
	}
	require.Equal(s.t, written, adaptertest.Written(s.t, s.db.DB), path)
	return got
}

// The handlers' habits of Fiber, with the ErrorHandler that Fiber has by default.
func TestFibersHabits(t *testing.T) {
	t.Parallel()
	s := openShop(t, fiber.New())
	s.Use(func(c fiber.Ctx) error {
		c.Set("X-Outside", "1")
		return c.Next()
	}, fibermw.Transaction(s.transactor))
	success := func(c fiber.Ctx) {
		c.Set("Location", "/orders/1")
		c.Cookie(&fiber.Cookie{Name: "session", Value: "secret"})
	}
	for path, handler := range map[string]fiber.Handler{
		"/json":        func(c fiber.Ctx) error { return c.Status(201).JSON(fiber.Map{"id": 1}) },
		"/nothing":     func(fiber.Ctx) error { return nil },
		"/status":      func(c fiber.Ctx) error { return c.SendStatus(204) },
		"/redirect":    func(c fiber.Ctx) error { return c.Redirect().To("/orders/1") },
		"/file":        func(c fiber.Ctx) error { return c.SendFile("doc.go") },
		"/conflict":    func(c fiber.Ctx) error { return c.Status(409).SendString("no") },
		"/error":       func(fiber.Ctx) error { return errTest },
		"/fiber-error": func(fiber.Ctx) error { return fiber.NewError(402, "no money") },
		"/unauthorized": func(c fiber.Ctx) error {
			c.Set("WWW-Authenticate", "Basic")
			return fiber.ErrUnauthorized
		},
		"/error-after-success": func(c fiber.Ctx) error { success(c); return errors.Join(c.SendString("ok"), errTest) },
		"/error-after-failure": func(c fiber.Ctx) error { success(c); return errors.Join(c.Status(409).SendString("no"), errTest) },
		"/no-status":           func(c fiber.Ctx) error { c.Status(1000); return nil },
	} {
		s.Post(path, s.write, handler)
	}
	s.Get("/get", func(c fiber.Ctx) error { return c.SendString("got") })
	s.listen()
	s.is("/json", 201, `{"id":1}`, "commit")
	s.is("/nothing", 200, "", "commit")
	s.is("/status", 204, "", "commit")
	require.Equal(t, "/orders/1", s.is("/redirect", 303, "", "commit").Header.Get("Location"))
	require.Contains(t, s.post("/file").body, "package fibermw")
	require.Equal(t, "commit", s.record.Outcomes()[len(s.record.Outcomes())-1])
	s.is("/conflict", 409, "no", "rollback")
	s.is("/error", 500, errTest.Error(), "rollback")
	s.is("/fiber-error", 402, "no money", "rollback")
	require.Equal(t, "Basic", s.is("/unauthorized", 401, "Unauthorized", "rollback").Header.Get("WWW-Authenticate"))
	got := s.is("/error-after-success", 500, errTest.Error(), "rollback")
	require.Empty(t, got.Header.Get("Location"))
	require.Empty(t, got.Header.Get("Set-Cookie"))
	require.Equal(t, "1", got.Header.Get("X-Outside"))
	require.Equal(t, "/orders/1", s.is("/error-after-failure", 500, errTest.Error(), "rollback").Header.Get("Location"))
	s.is("/nowhere", 404, "Not Found")
	require.Equal(t, "GET, HEAD", s.is("/get", 405, "Method Not Allowed").Header.Get("Allow"))
	before := len(s.record.Outcomes())
	_, err := s.client.Do(s.request(http.MethodPost, "/no-status", "")) //nolint:bodyclose // there is no response.
	require.Error(t, err, "a status that HTTP does not have")
	require.Equal(t, []string{"rollback"}, s.record.Outcomes()[before:])
}

// The ErrorHandler runs after the transaction: it has the pool's only connection, and a context that
// is alive and carries no transaction.
func TestTheErrorHandlerRunsAfterTheTransaction(t *testing.T) {
	t.Parallel()
	var s *shop
	var seen []error
	s = openShop(t, fiber.New(fiber.Config{ErrorHandler: func(c fiber.Ctx, err error) error {
		_, late := s.writer.Write(c.Context(), adaptertest.Event())
		require.ErrorIs(t, late, outbox.ErrNoTransaction)
		require.NoError(t, c.Context().Err())
		seen = append(seen, err)
		return outbox.InTx(c.Context(), s.transactor, func(ctx context.Context) error {
			_, err := s.writer.Write(ctx, adaptertest.Event())
			return errors.Join(err, c.Status(500).SendString("noted"))
		})
	}}))
	s.db.SetMaxOpenConns(1)
	s.Use(fibermw.Transaction(s.transactor))
	s.Post("/error", s.write, func(fiber.Ctx) error { return errTest })
	s.Post("/doomed", s.write, s.doom, func(c fiber.Ctx) error {
		c.Cookie(&fiber.Cookie{Name: "session", Value: "secret"})
		return c.Status(201).SendString("success")
	})
	s.listen()
	s.is("/error", 500, "noted", "rollback", "commit")
	require.Equal(t, errTest, seen[0])
	require.Empty(t, s.is("/doomed", 500, "noted", "rollback", "commit").Header.Get("Set-Cookie"))
	var commit *fibermw.CommitError
	require.ErrorAs(t, seen[1], &commit)
	require.Equal(t, "not committed", webtest.Text(seen[1]))
}

// RollbackOn may commit beside an error, by the status that the error has.
func TestRollbackOnMayCommitBesideAnError(t *testing.T) {
	t.Parallel()
	s := openShop(t, newFiber())
	mw, err := fibermw.TransactionConfig{Transactor: s.transactor, RollbackOn: func(_ fiber.Ctx, status int, _ error) bool {
		return status != 200 && status != 401
	}}.ToMiddleware()
	require.NoError(t, err)
	s.Use(mw)
	s.Post("/login", s.write, func(fiber.Ctx) error { return fiber.ErrUnauthorized })
	s.Post("/doomed", s.write, s.doom, func(fiber.Ctx) error { return fiber.ErrUnauthorized })
	s.Post("/error", s.write, func(fiber.Ctx) error { return errTest })
	s.Post("/rollback", s.write, func(c fiber.Ctx) error {
		return errors.Join(c.SendString("errors"), httptx.Rollback(c.Context()))
	})
	s.listen()
	s.is("/login", 500, "failed", "commit")
	s.is("/doomed", 500, "not committed", "rollback")
	s.is("/error", 500, "failed", "rollback")
	s.is("/rollback", 200, "errors", "rollback")
}

// Fiber's own context is a context.Context without the transaction: writing with it is refused.
func TestFibersOwnContextHasNoTransaction(t *testing.T) {
	t.Parallel()
	s := openShop(t, newFiber())
	s.Use(fibermw.Transaction(s.transactor))
	s.Post("/", func(c fiber.Ctx) error {
		_, err := s.writer.Write(c, adaptertest.Event())
		require.ErrorIs(t, err, outbox.ErrNoTransaction)
		return fibermw.OnCommit(c, func(context.Context) { _ = c.SendString("committed") })
	})
	s.listen()
	require.Equal(t, "committed", s.post("/").body)
}

// A stream is sent after the commit, and is of no use for writing events.
func TestAStreamIsSentAfterTheCommit(t *testing.T) {
	t.Parallel()
	s := openShop(t, newFiber())
	s.Use(fibermw.Transaction(s.transactor))
	late, ended := make(chan error, 1), make(chan error, 1)
	s.Post("/stream", s.write, func(c fiber.Ctx) error {
		ctx, committed := c.Context(), make(chan struct{})
		if err := fibermw.OnCommit(c, func(context.Context) { close(committed) }); err != nil {
			return err
		}
		return c.SendStreamWriter(func(w *bufio.Writer) {
			<-committed
			_, err := s.writer.Write(ctx, adaptertest.Event())
			late <- err
			_, _ = w.WriteString("streamed")
		})
	})
	s.Post("/doomed", s.write, s.doom, func(c fiber.Ctx) error {
		return c.SendStreamWriter(func(w *bufio.Writer) {
			for {
				_, _ = w.WriteString("success")
				if err := w.Flush(); err != nil {
					ended <- err
					return
				}
			}
		})
	})
	s.Post("/reader", s.write, s.doom, func(c fiber.Ctx) error { return c.SendStream(&closing{ended: ended}) })
	s.listen()
	s.is("/stream", 200, "streamed", "commit")
	require.ErrorIs(t, <-late, outbox.ErrNoTransaction)
	s.is("/doomed", 500, "not committed", "rollback")
	require.Error(t, <-ended, "the stream ends")
	s.is("/reader", 500, "not committed", "rollback")
	require.ErrorIs(t, <-ended, io.EOF)
}

// closing is a body that reports its end.
type closing struct{ ended chan error }

func (c *closing) Read(b []byte) (int, error) { return copy(b, "success"), nil }
func (c *closing) Close() error               { c.ended <- io.EOF; return nil }

// An upgraded connection belongs to the handler only after the commit.
func TestAnUpgradeNeedsTheCommit(t *testing.T) {
	t.Parallel()
	s := openShop(t, newFiber())
	s.Use(fibermw.Transaction(s.transactor))
	upgrade := func(c fiber.Ctx) error {
		c.RequestCtx().HijackSetNoResponse(true)
		c.RequestCtx().Hijack(func(conn net.Conn) {
			_, _ = io.WriteString(conn, "HTTP/1.1 202 Accepted\r\nContent-Length: 3\r\nConnection: close\r\n\r\nraw")
		})
		return nil
	}
	s.Post("/good", s.write, upgrade)
	s.Post("/doomed", s.write, s.doom, upgrade)
	s.listen()
	s.is("/good", 202, "raw", "commit")
	s.is("/doomed", 500, "not committed", "rollback")
}

// The middleware timeout runs its handler in another goroutine, and returns before the handler does.
func TestAHandlerThatTimesOutRollsBack(t *testing.T) {
	t.Parallel()
	s := openShop(t, newFiber())
	handled := make(chan error, 1)
	answered := make(chan struct{})
	var written atomic.Int32
	slow := func(c fiber.Ctx) error {
		ctx := c.Context()
		if _, err := s.writer.Write(ctx, adaptertest.Event()); err == nil { // else the machine is slow
			written.Add(1)
		}
		<-answered // the client has the answer
		_, err := s.writer.Write(ctx, adaptertest.Event())
		if err == nil {
			written.Add(1)
		}
		handled <- err
		return nil
	}
	ignored := func(c fiber.Ctx) error { return c.Status(202).SendString("later") }
	transaction := fibermw.Transaction(s.transactor)
	s.Post("/inside", transaction, timeout.New(slow, timeout.Config{Timeout: 50 * time.Millisecond}))
	s.Post("/ignored", transaction, timeout.New(slow, timeout.Config{Timeout: 50 * time.Millisecond, OnTimeout: ignored}))
	s.Post("/outside", timeout.New(func(c fiber.Ctx) error { return c.Next() }, timeout.Config{Timeout: 50 * time.Millisecond}), transaction, slow)
	s.Post("/in-time", transaction, timeout.New(func(c fiber.Ctx) error {
		_, err := s.writer.Write(c.Context(), adaptertest.Event())
		return errors.Join(err, c.SendString("in time"))
	}, timeout.Config{Timeout: time.Minute}))
	s.listen()
	for path, status := range map[string]int{"/inside": 408, "/ignored": 202, "/outside": 408} {
		require.Equal(t, status, s.post(path).StatusCode, path)
		answered <- struct{}{}
		if late := <-handled; path != "/outside" { // whose transaction ends a moment after its context
			require.Error(t, late, path)
		}
	}
	require.Eventually(t, func() bool { return len(s.record.Outcomes()) == int(written.Load()) }, 20*time.Second, time.Millisecond)
	require.NotContains(t, s.record.Outcomes(), "commit")
	require.Zero(t, adaptertest.Written(t, s.db.DB))
	s.is("/in-time", 200, "in time", "commit")
}

// A deadline that a middleware outside has set ends before the commit.
func TestAContextThatHasEndedRollsBack(t *testing.T) {
	t.Parallel()
	s := openShop(t, newFiber())
	s.Use(func(c fiber.Ctx) error {
		outside := c.Context()
		ctx, cancel := context.WithCancel(outside)
		defer cancel()
		c.SetContext(ctx)
		c.Locals("cancel", cancel)
		err := c.Next()
		require.Equal(t, ctx, c.Context())
		return err
	}, fibermw.Transaction(s.transactor))
	s.Post("/", s.write, func(c fiber.Ctx) error {
		c.Locals("cancel").(context.CancelFunc)()
		return c.SendString("success")
	})
	s.listen()
	s.is("/", 500, "not committed", "rollback")
}

// Fasthttp does not notice that the client has gone: the request commits.
func TestAClientThatHasGone(t *testing.T) {
	t.Parallel()
	s := openShop(t, newFiber())
	s.Use(fibermw.Transaction(s.transactor))
	arrived, gone := make(chan struct{}), make(chan struct{})
	s.Post("/", s.write, func(c fiber.Ctx) error {
		close(arrived)
		<-gone
		return c.SendString("success")
	})
	s.listen()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(s.url, "http://"))
	require.NoError(t, err)
	_, err = io.WriteString(conn, "POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 0\r\n\r\n")
	require.NoError(t, err)
	<-arrived
	require.NoError(t, conn.(*net.TCPConn).SetLinger(0))
	require.NoError(t, conn.Close())
	close(gone)
	require.Eventually(t, func() bool { return len(s.record.Outcomes()) == 1 }, 20*time.Second, time.Millisecond)
	require.Equal(t, []string{"commit"}, s.record.Outcomes())
	require.Equal(t, 1, adaptertest.Written(t, s.db.DB))
}

// A handler of net/http finds the transaction by the adaptor's context, and an app in an app by its
// own.
func TestHandlersOfNetHTTPAndAppsInApps(t *testing.T) {
	t.Parallel()
	s := openShop(t, newFiber())
	s.Use(fibermw.Transaction(s.transactor))
	s.Post("/net-http", adaptor.HTTPHandlerWithContext(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, _ := adaptor.LocalContextFromHTTPRequest(r)
		if _, err := s.writer.Write(ctx, adaptertest.Event()); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusCreated)
	})))
	s.Post("/handler", fibermw.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := s.writer.Write(r.Context(), adaptertest.Event()); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusCreated)
	})))
	inner := fiber.New()
	inner.Use(fibermw.Transaction(s.transactor))
	inner.Post("/orders", s.write, func(c fiber.Ctx) error { return c.SendString("inner") })
	s.Use("/shop", inner)
	restarted := false
	s.Post("/restart", s.write, func(c fiber.Ctx) error {
		if restarted {
			return c.SendString("restarted")
		}
		restarted = true
		return c.RestartRouting()
	})
	s.listen()
	s.is("/net-http", 201, "", "commit")
	s.is("/handler", 201, "", "commit")
	s.is("/shop/orders", 200, "inner", "commit")
	require.Equal(t, "restarted", s.post("/restart").body)
	require.Equal(t, []string{"commit", "commit", "commit", "commit", "commit"}, s.record.Outcomes(), "two events of one transaction")
}

func TestTheConfigIsChecked(t *testing.T) {
	t.Parallel()
	_, err := fibermw.TransactionConfig{ReadOnlyMethods: []string{"get"}, Idempotency: &httptx.Idempotency{}}.ToMiddleware()
	require.ErrorContains(t, err, "TransactionConfig.Transactor is required")
	require.ErrorContains(t, err, "TransactionConfig.ReadOnlyMethods[0]")
	require.ErrorContains(t, err, "TransactionConfig.Idempotency.Keys is required")
	require.Panics(t, func() { fibermw.Transaction(nil) })
	require.Panics(t, func() { fibermw.Health(fibermw.HealthConfig{}) })
	require.Panics(t, func() { fibermw.Admin(nil, nil, fibermw.Access{}) })
	require.Panics(t, func() { fibermw.Admin(fiber.New(), nil, fibermw.Access{}) })
}

// Fiber's strings point into memory that the next request uses. An event that waits for its listener
// keeps what it was written with.
func TestAnEventKeepsFibersStrings(t *testing.T) {
	t.Parallel()
	s := openShop(t, newFiber())
	db := testdb.Open(t, adaptertest.Main()[2])
	store := sqlstore.SQLite()
	require.NoError(t, store.CreateSchema(t.Context(), db.DB))
	ob, err := outbox.New(outbox.Config{DB: db.DB, Store: store, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { _ = ob.Close(context.Background()) }) //nolint:usetesting // t.Context has ended by then.
	overwritten, seen := make(chan struct{}), make(chan outbox.Envelope, 1)
	require.NoError(t, ob.Register(outbox.On("Order", "OrderPlaced", outbox.ListenerFunc(func(_ context.Context, env outbox.Envelope) error {
		<-overwritten
		seen <- env
		return nil
	}))))
	require.NoError(t, ob.Start(t.Context()))
	s.Post("/orders/:id/:tenant/:event/:header/:payload", fibermw.Transaction(adaptertest.Adapter(t, db.DB, ob.Writer())), func(c fiber.Ctx) error {
		_, err := ob.Writer().Write(c.Context(), outbox.Envelope{
			EventID: c.Params("event"), EventType: "OrderPlaced", AggregateType: "Order", AggregateID: c.Params("id"),
			TenantID: c.Params("tenant"), Headers: map[string]string{"key": c.Params("header")}, Payload: outbox.RawJSON(c.Params("payload")),
		})
		return err
	})
	s.Put("/*", func(fiber.Ctx) error { return nil })
	s.listen()
	require.Equal(t, 200, s.post("/orders/aaaa/bbbb/cccc/dddd/1111").StatusCode)
	for range 10 { // Fiber may use the memory of another request first
		require.Equal(t, 200, s.do(s.request(http.MethodPut, "/"+strings.Repeat("x", 30), "")).StatusCode)
	}
	close(overwritten)
	env := <-seen
	require.Equal(t, []string{"aaaa", "bbbb", "cccc", "dddd", "1111"},
		[]string{env.AggregateID, env.TenantID, env.EventID, env.Headers["key"], env.Payload.String()})
}
