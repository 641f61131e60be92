package fibermw_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"testing"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/adaptor"
	recoverer "github.com/gofiber/fiber/v3/middleware/recover"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/fibermw"
	"github.com/outboxkit/outbox-go/internal/testing/webtest"
)

// The tests that all web frameworks share, with a server of fasthttp behind a proxy.
func TestSuite(t *testing.T) {
	t.Parallel()
	webtest.Run(t, webtest.Framework{NoInformational: true, Buffered: true, New: func(t *testing.T, app webtest.App) http.Handler {
		f := newFiber(fiber.Config{ReadBufferSize: 16 << 10}) // for the long URIs of a test
		for _, config := range app.Transactions {
			own := fibermw.TransactionConfig{
				Transactor: config.Transactor, TxOptions: config.TxOptions,
				ReadOnlyMethods: config.ReadOnlyMethods, Idempotency: config.Idempotency,
			}
			if config.Skipper != nil {
				own.Skipper = func(c fiber.Ctx) bool { return config.Skipper(asRequest(t, c)) }
			}
			if config.RollbackOn != nil {
				own.RollbackOn = func(c fiber.Ctx, status int, _ error) bool { return config.RollbackOn(asRequest(t, c), status, nil) }
			}
			mw, err := own.ToMiddleware()
			require.NoError(t, err)
			f.Use(mw)
		}
		for path, handler := range app.Routes {
			f.All(path, func(c fiber.Ctx) error {
				w := &responseWriter{header: http.Header{}}
				err := handler(w, asRequest(t, c))
				w.send(c)
				return err
			})
		}
		if app.Outbox != nil {
			f.Get("/healthz", fibermw.Health(fibermw.HealthConfig{Outbox: app.Outbox}))
			fibermw.Admin(f.Group("/admin"), app.Outbox, app.Access)
		}
		target, err := url.Parse(listen(t, f))
		require.NoError(t, err)
		transport := new(http.Transport)
		t.Cleanup(transport.CloseIdleConnections)
		return &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Host = r.In.Host
		}}
	}})
}

// newFiber is an app with an ErrorHandler and with a middleware for panics, as Fiber's guide has it.
func newFiber(config ...fiber.Config) *fiber.App {
	own := append(config, fiber.Config{})[0]
	own.ErrorHandler = func(c fiber.Ctx, err error) error {
		return c.Status(http.StatusInternalServerError).SendString(webtest.Text(err))
	}
	app := fiber.New(own)
	app.Use(recoverer.New())
	return app
}

// listen serves the app, and returns its URL.
func listen(t *testing.T, app *fiber.App) string {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- app.Listener(listener, fiber.ListenConfig{DisableStartupMessage: true}) }()
	t.Cleanup(func() {
		require.NoError(t, app.ShutdownWithContext(context.Background())) //nolint:usetesting // t.Context has ended by then.
		require.NoError(t, <-served)
	})
	return "http://" + listener.Addr().String()
}

// asRequest is Fiber's request for a handler of the suite.
func asRequest(t *testing.T, c fiber.Ctx) *http.Request {
	t.Helper()
	request, err := adaptor.ConvertRequest(c, true)
	require.NoError(t, err)
	return request.WithContext(c.Context())
}

// responseWriter keeps the response of a handler of the suite.
type responseWriter struct {
	header, sent http.Header
	status       int
	body         []byte
}

func (w *responseWriter) Header() http.Header { return w.header }

func (w *responseWriter) WriteHeader(status int) {
	if w.status == 0 {
		w.status, w.sent = status, w.header.Clone()
	}
}

func (w *responseWriter) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	w.body = append(w.body, b...)
	return len(b), nil
}

func (w *responseWriter) send(c fiber.Ctx) {
	if w.status == 0 {
		w.sent = w.header
	} else {
		c.Status(w.status)
	}
	for name, values := range w.sent {
		for _, value := range values {
			c.Response().Header.Add(name, value)
		}
	}
	_, _ = c.Write(w.body)
}
