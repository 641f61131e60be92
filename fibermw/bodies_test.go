package fibermw_test

import (
	"bytes"
	"fmt"
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
	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
)

// form is a multipart form with a field and a file.
func form(t *testing.T, value string, file []byte) (body, contentType string) {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	require.NoError(t, w.WriteField("field", value))
	part, err := w.CreateFormFile("file", "file.bin")
	require.NoError(t, err)
	_, err = part.Write(file)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.String(), w.FormDataContentType()
}

// The limit of a body with a key counts the fields of a form.
func TestAFormWithAKeyHasALimit(t *testing.T) {
	t.Parallel()
	for _, stream := range []bool{false, true} {
		t.Run(fmt.Sprint("stream ", stream), func(t *testing.T) {
			t.Parallel()
			s := openShop(t, newFiber(fiber.Config{StreamRequestBody: stream, BodyLimit: 1 << 20}))
			s.keyed(func(c *httptx.Idempotency) { c.MaxBody = 1000 })
			s.Post("/", s.write, func(c fiber.Ctx) error { return c.SendString("done") })
			s.listen()
			for _, body := range []struct {
				field string
				file  []byte
			}{{strings.Repeat("x", 5000), nil}, {"x", make([]byte, 5000)}} {
				text, contentType := form(t, body.field, body.file)
				got := s.do(s.request(http.MethodPost, "/", text, "Content-Type", contentType, httptx.KeyHeader, "k"))
				require.Contains(t, got.problem(t, 413), "1000 bytes")
			}
			require.Zero(t, adaptertest.Written(t, s.db.DB))
		})
	}
}

// A body that breaks off takes no key.
func TestABodyThatBreaksOffTakesNoKey(t *testing.T) {
	t.Parallel()
	s := openShop(t, newFiber(fiber.Config{StreamRequestBody: true, DisablePreParseMultipartForm: true, BodyLimit: 1 << 10}))
	s.keyed(nil)
	s.Post("/", s.write, func(c fiber.Ctx) error { return c.SendString(fmt.Sprint(len(c.Body()))) })
	s.listen()
	body, contentType := form(t, "x", make([]byte, 60_000))
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(s.url, "http://"))
	require.NoError(t, err)
	_, err = fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: a\r\nIdempotency-Key: k\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s", contentType, len(body), body[:len(body)-1000])
	require.NoError(t, err)
	require.NoError(t, conn.(*net.TCPConn).CloseWrite())
	answered, err := io.ReadAll(conn) // the server has ended the request
	require.NoError(t, err)
	require.NoError(t, conn.Close())
	require.NotContains(t, string(answered), "200 OK")
	require.Zero(t, adaptertest.Written(t, s.db.DB))
	got := s.do(s.request(http.MethodPost, "/", body, "Content-Type", contentType, httptx.KeyHeader, "k"))
	got.replays(t, 200, fmt.Sprint(len(body)), false)
	require.Equal(t, 1, adaptertest.Written(t, s.db.DB))
}

// A handler of net/http gets the body, streamed or not, as a form or not.
func TestHandlersOfNetHTTPGetTheBody(t *testing.T) {
	t.Parallel()
	for _, stream := range []bool{false, true} {
		t.Run(fmt.Sprint("stream ", stream), func(t *testing.T) {
			t.Parallel()
			s := openShop(t, newFiber(fiber.Config{StreamRequestBody: stream}))
			s.Post("/", fibermw.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = fmt.Fprint(w, r.FormValue("field"))
			})))
			s.listen()
			require.Equal(t, "tea", s.do(s.request(http.MethodPost, "/", "field=tea", "Content-Type", "application/x-www-form-urlencoded")).body)
			text, contentType := form(t, "tea", []byte("file"))
			require.Equal(t, "tea", s.do(s.request(http.MethodPost, "/", text, "Content-Type", contentType)).body)
		})
	}
}

// An ErrorHandler that writes nothing makes no success of a failure.
func TestASilentErrorHandler(t *testing.T) {
	t.Parallel()
	s := openShop(t, fiber.New(fiber.Config{ErrorHandler: func(fiber.Ctx, error) error { return nil }}))
	s.Use(fibermw.Transaction(s.transactor))
	s.Post("/", s.write, s.doom, func(c fiber.Ctx) error { return c.Status(201).SendString("created") })
	s.listen()
	got := s.post("/")
	require.Equal(t, 500, got.StatusCode)
	require.Empty(t, got.body)
}
