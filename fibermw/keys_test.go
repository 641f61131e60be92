package fibermw_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/gofiber/fiber/v3"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/fibermw"
	"github.com/outboxkit/outbox-go/httptx"
	"github.com/outboxkit/outbox-go/idempotency"
	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
)

// keyed adds the middleware with keys.
func (s *shop) keyed(change func(config *httptx.Idempotency)) {
	s.t.Helper()
	keys, err := idempotency.New(idempotency.Config{DB: s.db.DB, Dialect: idempotency.SQLite})
	require.NoError(s.t, err)
	require.NoError(s.t, keys.CreateSchema(s.t.Context()))
	config := httptx.Idempotency{Keys: keys}
	if change != nil {
		change(&config)
	}
	mw, err := fibermw.TransactionConfig{Transactor: s.transactor, Idempotency: &config}.ToMiddleware()
	require.NoError(s.t, err)
	s.Use(mw)
}

// replays checks the answer to a request with a key.
func (a answer) replays(t *testing.T, status int, body string, replayed bool) {
	t.Helper()
	require.Equal(t, status, a.StatusCode, a.body)
	require.Equal(t, body, a.body)
	require.Equal(t, replayed, a.Header.Get(httptx.ReplayedHeader) == "true")
}

// problem is the detail of a problem document.
func (a answer) problem(t *testing.T, status int) string {
	t.Helper()
	require.Equal(t, status, a.StatusCode, a.body)
	require.Equal(t, "application/problem+json", a.Header.Get("Content-Type"))
	var problem struct{ Detail string }
	require.NoError(t, json.Unmarshal([]byte(a.body), &problem))
	return problem.Detail
}

// The stored answer has the headers that the handler set, and those that middlewares outside set this
// time.
func TestAKeyAndMiddlewaresOutside(t *testing.T) {
	t.Parallel()
	s := openShop(t, newFiber())
	requests := 0
	s.Use(func(c fiber.Ctx) error {
		requests++
		c.Set("Vary", "Origin")
		c.Set("X-Request-Id", strings.Repeat("x", requests))
		return c.Next()
	})
	s.keyed(func(c *httptx.Idempotency) {
		c.Scope = func(r *http.Request) string { return r.Header.Get("Tenant") + r.URL.Query().Get("tenant") }
		c.Headers = []string{"Host", "Currency"}
		c.AnswerHeaders = []string{"Location", "Content-Type", "Vary", "Link"}
	})
	s.Post("/orders/:id", s.write, func(c fiber.Ctx) error {
		c.Set("Location", "/orders/"+c.Params("id"))
		c.Response().Header.Add("Link", "<a>")
		c.Response().Header.Add("Link", "<b>")
		c.Cookie(&fiber.Cookie{Name: "session", Value: "secret"})
		return c.Status(201).JSON(fiber.Map{"ok": true})
	})
	s.listen()
	first := s.post("/orders/1", httptx.KeyHeader, "k")
	first.replays(t, 201, `{"ok":true}`, false)
	again := s.post("/orders/1", httptx.KeyHeader, "k")
	again.replays(t, 201, `{"ok":true}`, true)
	for _, name := range []string{"Location", "Content-Type", "Vary", "Link"} {
		require.Equal(t, first.Header.Values(name), again.Header.Values(name), name)
	}
	require.Equal(t, "xx", again.Header.Get("X-Request-Id"))
	require.Empty(t, again.Header.Get("Set-Cookie"))
	require.Contains(t, s.post("/orders/2", httptx.KeyHeader, "k").problem(t, 422), "another request")
	require.Contains(t, s.post("/orders/1", httptx.KeyHeader, "k", "Currency", "EUR").problem(t, 422), "another request")
	require.Contains(t, s.post("/orders/1", httptx.KeyHeader, "k", httptx.KeyHeader, "l").problem(t, 400), "2 headers")
	other := s.request(http.MethodPost, "/orders/1", "", httptx.KeyHeader, "k")
	other.Host = "another.test"
	s.do(other).problem(t, 422)
	s.post("/orders/1", httptx.KeyHeader, "k", "Tenant", "another").replays(t, 201, `{"ok":true}`, false)
	require.Equal(t, 2, adaptertest.Written(t, s.db.DB))
}

// An answer is stored as far as the handler wrote it: an ErrorHandler's answer and a stream are not.
func TestWhatAKeyStores(t *testing.T) {
	t.Parallel()
	s := openShop(t, newFiber())
	s.keyed(func(c *httptx.Idempotency) {
		c.StoreFailure = func(_ *http.Request, status int) bool { return status == 402 }
	})
	calls := map[string]int{}
	for path, handler := range map[string]fiber.Handler{
		"/written":  func(c fiber.Ctx) error { return c.Status(402).SendString("no money") },
		"/returned": func(fiber.Ctx) error { return fiber.NewError(402, "no money") },
		"/file":     func(c fiber.Ctx) error { return c.SendFile("doc.go") },
		"/decided": func(c fiber.Ctx) error {
			return errors.Join(httptx.Commit(c.Context()), fiber.NewError(409, "taken"))
		},
	} {
		s.Post(path, s.write, func(c fiber.Ctx) error { calls[path]++; return handler(c) })
	}
	s.listen()
	s.post("/written", httptx.KeyHeader, "written").replays(t, 402, "no money", false)
	s.post("/written", httptx.KeyHeader, "written").replays(t, 402, "no money", true)
	for range 2 {
		s.post("/returned", httptx.KeyHeader, "returned").replays(t, 500, "failed", false)
	}
	require.Contains(t, s.post("/file", httptx.KeyHeader, "file").body, "package fibermw")
	require.Contains(t, s.post("/file", httptx.KeyHeader, "file").problem(t, 409), "not stored")
	s.post("/decided", httptx.KeyHeader, "decided").replays(t, 500, "failed", false)
	require.Contains(t, s.post("/decided", httptx.KeyHeader, "decided").problem(t, 409), "not stored")
	require.Equal(t, map[string]int{"/written": 1, "/returned": 2, "/file": 1, "/decided": 1}, calls)
}

// The answer to a request that is refused may be the service's own.
func TestAnErrorHandlerOfKeys(t *testing.T) {
	t.Parallel()
	s := openShop(t, newFiber())
	s.keyed(func(c *httptx.Idempotency) {
		c.Use = func(*http.Request) httptx.KeyUse { return httptx.KeyRequired }
		c.ErrorHandler = func(w http.ResponseWriter, r *http.Request, err *httptx.KeyError) {
			if r.URL.Path == "/short" {
				_, _ = io.WriteString(w, err.Detail[:10])
			}
		}
	})
	s.listen()
	require.Equal(t, "the header", s.post("/short").body)
	require.Equal(t, 400, s.post("/").StatusCode)
}

// A body that fasthttp has not read yet is read for the key, and the handler gets it.
func TestAKeyAndABodyThatStreams(t *testing.T) {
	t.Parallel()
	s := openShop(t, newFiber(fiber.Config{StreamRequestBody: true, BodyLimit: 1}))
	s.keyed(func(c *httptx.Idempotency) { c.MaxBody = 100_000 })
	s.Post("/", s.write, func(c fiber.Ctx) error { return c.Send(c.Body()) })
	s.listen()
	send := func(key, body string) answer {
		return s.do(s.request(http.MethodPost, "/", body, httptx.KeyHeader, key))
	}
	long := strings.Repeat("0123456789", 10_000)
	send("k", long).replays(t, 200, long, false)
	send("k", long).replays(t, 200, long, true)
	require.Contains(t, send("k", long[1:]).problem(t, 422), "another request")
	require.Contains(t, send("l", long+"0").problem(t, 413), "100000 bytes")
	s.do(s.request(http.MethodPost, "/", long+"0")).replays(t, 200, long+"0", false)
}

// Fasthttp takes a form with files apart; the order of its parts is lost.
func TestAKeyAndAFormWithFiles(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]fiber.Config{
		"parsed": {}, "not parsed": {DisablePreParseMultipartForm: true}, "streamed": {StreamRequestBody: true, BodyLimit: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openShop(t, newFiber(config))
			s.keyed(nil)
			s.Post("/", s.write, func(c fiber.Ctx) error {
				file, err := c.FormFile("file-3")
				if err != nil {
					return err
				}
				opened, err := file.Open()
				if err != nil {
					return err
				}
				defer func() { _ = opened.Close() }()
				content, err := io.ReadAll(opened)
				return errors.Join(err, c.SendString(c.FormValue("field-3")+string(content)))
			})
			s.listen()
			send := func(last string) answer {
				var body bytes.Buffer
				form := multipart.NewWriter(&body)
				for _, n := range []string{"1", "2", "3", "4", "5"} {
					require.NoError(t, form.WriteField("field-"+n, "value "+n+" "))
					part, err := form.CreateFormFile("file-"+n, n+".txt")
					require.NoError(t, err)
					_, err = io.WriteString(part, "content "+n)
					require.NoError(t, err)
				}
				require.NoError(t, form.WriteField("last", last))
				require.NoError(t, form.Close())
				return s.do(s.request(http.MethodPost, "/", body.String(), httptx.KeyHeader, "k", "Content-Type", form.FormDataContentType()))
			}
			send("a").replays(t, 200, "value 3 content 3", false)
			for range 10 {
				send("a").replays(t, 200, "value 3 content 3", true)
			}
			require.Contains(t, send("b").problem(t, 422), "another request")
		})
	}
}

// Fasthttp accepts targets that net/http refuses.
func TestAKeyAndAnOddTarget(t *testing.T) {
	t.Parallel()
	s := openShop(t, newFiber())
	s.keyed(func(c *httptx.Idempotency) { c.Scope = func(r *http.Request) string { return r.URL.Path } })
	s.Use(func(c fiber.Ctx) error { return c.SendString("found") })
	s.listen()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(s.url, "http://"))
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	_, err = io.WriteString(conn, "POST /%zz HTTP/1.1\r\nHost: test\r\nIdempotency-Key: k\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
	require.NoError(t, err)
	got, err := io.ReadAll(conn)
	require.NoError(t, err)
	require.Contains(t, string(got), "found")
}
