package echomw_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/echomw"
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
