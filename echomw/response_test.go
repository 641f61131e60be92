package echomw_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/echomw"
	"github.com/outboxkit/outbox-go/internal/adaptertest"
	"github.com/outboxkit/outbox-go/outbox"
)

// everyMethod is a config under which no method is without a transaction.
func everyMethod() echomw.TransactionConfig {
	return echomw.TransactionConfig{ReadOnlyMethods: []string{}}
}

func TestResponsesOfEveryFormArrive(t *testing.T) {
	t.Parallel()
	a := newApp(t).configured(everyMethod())
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file.txt"), []byte("of a file"), 0o600))
	big := strings.Repeat("0123456789abcdef", 3<<16) // 3 MiB
	handlers := map[string]echo.HandlerFunc{
		"/json": func(c echo.Context) error { return c.JSON(http.StatusOK, echo.Map{"ok": true}) },
		"/stream": func(c echo.Context) error {
			return c.Stream(http.StatusOK, "text/plain", strings.NewReader("streamed"))
		},
		"/big":       func(c echo.Context) error { return c.Blob(http.StatusOK, "text/plain", []byte(big)) },
		"/bigstream": func(c echo.Context) error { return c.Stream(http.StatusOK, "text/plain", strings.NewReader(big)) },
		"/nocontent": func(c echo.Context) error { return c.NoContent(http.StatusNoContent) },
		"/nothing":   func(echo.Context) error { return nil },
		"/redirect":  func(c echo.Context) error { return c.Redirect(http.StatusSeeOther, "/orders/1") },
		"/file":      func(c echo.Context) error { return c.File(filepath.Join(dir, "file.txt")) },
		"/trailer": func(c echo.Context) error {
			c.Response().Header().Set("Trailer", "Checksum")
			_ = c.String(http.StatusOK, "with a trailer")
			c.Response().Header().Set("Checksum", "42")
			return nil
		},
	}
	for path, handler := range handlers {
		a.Any(path, a.writing(handler))
	}
	committed := 0
	for _, tc := range []struct {
		method, path string
		status       int
		body         string
		header       [2]string
	}{
		{"POST", "/json", 200, `{"ok":true}`, [2]string{"Content-Length", "12"}},
		{"GET", "/json", 200, `{"ok":true}`, [2]string{"Content-Type", "application/json"}},
		{"HEAD", "/json", 200, "", [2]string{"Content-Type", "application/json"}},
		{"POST", "/stream", 200, "streamed", [2]string{"Content-Type", "text/plain"}},
		{"POST", "/big", 200, big, [2]string{"Content-Type", "text/plain"}},
		{"POST", "/bigstream", 200, big, [2]string{"Content-Type", "text/plain"}},
		{"POST", "/nocontent", 204, "", [2]string{}},
		{"POST", "/nothing", 200, "", [2]string{}},
		{"POST", "/redirect", 303, "", [2]string{"Location", "/orders/1"}},
		{"POST", "/file", 200, "of a file", [2]string{"Content-Length", "9"}},
		{"HEAD", "/file", 200, "", [2]string{"Content-Length", "9"}},
		{"POST", "/trailer", 200, "with a trailer", [2]string{}},
	} {
		got := a.send(tc.method, tc.path)
		require.NoError(t, got.err, tc.path)
		require.Equal(t, tc.status, got.StatusCode, tc.path)
		require.True(t, tc.body == got.body, "%s: %.80q", tc.path, got.body)
		require.Equal(t, tc.header[1], got.Header.Get(tc.header[0]), tc.path)
		if tc.path == "/trailer" {
			require.Equal(t, "42", got.Trailer.Get("Checksum"))
		}
		committed++
		require.Len(t, a.record.Outcomes(), committed, "%s %s", tc.method, tc.path)
	}
	require.NotContains(t, a.record.Outcomes(), "rollback")
	got := a.send("POST", "/file", "Range", "bytes=3-6")
	a.wantAnswer(got, 206, "a fi")
}

func TestMethodsThatOnlyReadHaveNoTransaction(t *testing.T) {
	t.Parallel()
	a := newApp(t).transaction(nil)
	a.Any("/", func(c echo.Context) error {
		err := a.write(c)
		require.ErrorIs(t, err, outbox.ErrNoTransaction)
		require.ErrorContains(t, err, c.Request().Method+", which is one of TransactionConfig.ReadOnlyMethods")
		require.ErrorIs(t, echomw.OnCommit(c, func(context.Context) {}), outbox.ErrNoTransaction)
		return outbox.InTx(c.Request().Context(), a.transactor, func(ctx context.Context) error {
			_, err := a.writer.Write(ctx, adaptertest.Event())
			return errors.Join(err, c.NoContent(http.StatusNoContent))
		})
	})
	for _, method := range []string{"GET", "HEAD", "OPTIONS"} {
		require.Equal(t, 204, a.send(method, "/").StatusCode, method)
	}
	a.want(3, "commit", "commit", "commit")
}

func TestTheSkipperSkips(t *testing.T) {
	t.Parallel()
	a := newApp(t).configured(echomw.TransactionConfig{Skipper: func(c echo.Context) bool { return c.Path() == "/skipped" }})
	handler := func(c echo.Context) error {
		if a.write(c) != nil {
			return c.String(http.StatusOK, "no transaction")
		}
		return c.String(http.StatusOK, "transaction")
	}
	a.POST("/skipped", handler)
	a.POST("/other", handler)
	a.wantAnswer(a.post("/skipped"), 200, "no transaction")
	a.wantAnswer(a.post("/other"), 200, "transaction")
}

// The events of a stream come one by one, after the commit that the first Flush
// made.
func TestFlushCommitsAndStreams(t *testing.T) {
	t.Parallel()
	flushes := map[string]func(c echo.Context) error{
		"echo":       func(c echo.Context) error { c.Response().Flush(); return nil },
		"controller": func(c echo.Context) error { return http.NewResponseController(c.Response()).Flush() },
	}
	for name, flush := range flushes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newApp(t).transaction(nil)
			goOn := make(chan struct{})
			var late, registered error
			a.POST("/", a.writing(func(c echo.Context) error {
				c.Response().Header().Set(echo.HeaderContentType, "text/event-stream")
				c.Response().WriteHeader(http.StatusOK)
				_, _ = fmt.Fprint(c.Response(), "data: 1\n\n")
				require.Empty(t, a.record.Outcomes())
				if err := flush(c); err != nil {
					return err
				}
				late, registered = a.write(c), echomw.OnCommit(c, func(context.Context) {})
				<-goOn
				_, _ = fmt.Fprint(c.Response(), "data: 2\n\n")
				return flush(c)
			}))
			a.start()
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, a.server.URL, nil)
			require.NoError(t, err)
			response, err := a.client.Do(request)
			require.NoError(t, err)
			defer func() { _ = response.Body.Close() }()
			lines := bufio.NewReader(response.Body)
			line, err := lines.ReadString('\n')
			require.NoError(t, err)
			require.Equal(t, "data: 1\n", line)
			a.want(1, "commit")
			close(goOn)
			rest, err := io.ReadAll(lines)
			require.NoError(t, err)
			require.Equal(t, "\ndata: 2\n\n", string(rest))
			require.ErrorIs(t, late, outbox.ErrNoTransaction)
			require.ErrorIs(t, registered, outbox.ErrNoTransaction)
		})
	}
}

func TestAWebsocketCommitsWhenItIsAccepted(t *testing.T) {
	t.Parallel()
	a := newApp(t).configured(everyMethod())
	var late error
	a.GET("/", a.writing(func(c echo.Context) error {
		conn, err := websocket.Accept(c.Response(), c.Request(), nil)
		if err != nil {
			return err
		}
		late = a.write(c)
		if err := conn.Write(c.Request().Context(), websocket.MessageText, []byte("hello")); err != nil {
			return err
		}
		return conn.Close(websocket.StatusNormalClosure, "")
	}))
	a.start()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	conn, response, err := websocket.Dial(ctx, a.server.URL, &websocket.DialOptions{HTTPClient: a.client})
	require.NoError(t, err)
	require.Equal(t, http.StatusSwitchingProtocols, response.StatusCode)
	_, message, err := conn.Read(ctx)
	require.NoError(t, err)
	require.Equal(t, "hello", string(message))
	a.want(1, "commit")
	_, _, err = conn.Read(ctx)
	require.Equal(t, websocket.StatusNormalClosure, websocket.CloseStatus(err))
	require.ErrorIs(t, late, outbox.ErrNoTransaction)
}

func TestAHijackedConnectionIsCommitted(t *testing.T) {
	t.Parallel()
	a := newApp(t).transaction(nil)
	a.POST("/", a.writing(func(c echo.Context) error {
		conn, buffered, err := c.Response().Hijack()
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		require.Equal(t, []string{"commit"}, a.record.Outcomes())
		_, _ = buffered.WriteString("HTTP/1.1 202 Accepted\r\nContent-Length: 3\r\nConnection: close\r\n\r\nraw")
		return buffered.Flush()
	}))
	a.wantAnswer(a.post("/"), 202, "raw")
	a.want(1, "commit")
}

func TestDeadlinesReachTheConnection(t *testing.T) {
	t.Parallel()
	a := newApp(t).transaction(nil)
	a.POST("/", a.writing(func(c echo.Context) error {
		controller := http.NewResponseController(c.Response())
		for _, err := range []error{
			controller.SetReadDeadline(time.Now().Add(time.Minute)),
			controller.SetWriteDeadline(time.Now().Add(time.Minute)),
			controller.EnableFullDuplex(),
		} {
			if err != nil {
				return err
			}
		}
		require.Empty(t, a.record.Outcomes(), "setting deadlines does not commit")
		return c.String(http.StatusOK, "set")
	}))
	a.wantAnswer(a.post("/"), 200, "set")
}

// The hooks of Echo's response run when it is written, which is before the
// commit.
func TestResponseHooksRunBeforeTheCommit(t *testing.T) {
	t.Parallel()
	a := newApp(t).transaction(nil)
	var calls []string
	a.POST("/", a.writing(func(c echo.Context) error {
		c.Response().Before(func() {
			calls = append(calls, "before")
			c.Response().Header().Set("X-Hook", "set")
		})
		c.Response().After(func() { calls = append(calls, fmt.Sprint("after ", len(a.record.Outcomes()))) })
		return c.String(http.StatusOK, "ok")
	}))
	got := a.post("/")
	a.wantAnswer(got, 200, "ok")
	require.Equal(t, "set", got.Header.Get("X-Hook"))
	require.Equal(t, []string{"before", "after 0"}, calls)
	a.want(1, "commit")
}

func TestAStatusThatIsNoneIsNotCommitted(t *testing.T) {
	t.Parallel()
	a := newApp(t).transaction(outside(recovery()))
	a.POST("/", a.writing(func(c echo.Context) error { return c.String(0, "what?") }))
	a.wantAnswer(a.post("/"), 500, `{"error":"internal"}`)
	a.want(0, "rollback")
}
