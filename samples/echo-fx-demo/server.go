package main

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/contrib/instrumentation/github.com/labstack/echo/otelecho"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/fx"

	"github.com/outboxkit/outbox-go/echomw"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/samples/internal/database"
)

// server is the API.
type server struct {
	echo       *echo.Echo
	shop       Shop
	deliveries *deliveries
	settings   Settings
	where      string // the database
}

// serverParams is what the server is made of.
type serverParams struct {
	fx.In

	Settings   Settings
	DB         *database.DB
	Shop       Shop
	Deliveries *deliveries
	Outbox     *outbox.Outbox
	Metrics    *prometheus.Registry
	Traces     trace.TracerProvider
}

func newServer(p serverParams) *server {
	srv := &server{echo: echo.New(), shop: p.Shop, deliveries: p.Deliveries, settings: p.Settings, where: p.DB.Where}
	e := srv.echo
	e.HideBanner, e.HidePort = true, true
	e.Server.ReadHeaderTimeout, e.Server.ReadTimeout = 5*time.Second, 10*time.Second
	e.HTTPErrorHandler = answerError
	e.Use(otelecho.Middleware("", // the host is the request's; the service's name is on the provider
		otelecho.WithTracerProvider(p.Traces), otelecho.WithSkipper(untraced),
		otelecho.WithPropagators(propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{}))))
	e.Use(middleware.RecoverWithConfig(middleware.RecoverConfig{LogErrorFunc: func(_ echo.Context, err error, _ []byte) error { return err }}))

	// Each request that changes something has a transaction. It begins when the
	// body is there, so that a slow client holds none, and commits before the
	// response leaves.
	transaction := []echo.MiddlewareFunc{bodyFirst, simulated, echomw.Transaction(&faultyTransactor{p.Shop})}
	e.POST("/orders", srv.place, transaction...)
	e.POST("/orders/bulk", srv.placeBulk, transaction...)
	e.GET("/orders", srv.listOrders)

	e.GET("/deliveries", srv.listDeliveries)
	e.GET(healthPath, echomw.Health(echomw.HealthConfig{Outbox: p.Outbox}))
	e.GET(metricsPath, echo.WrapHandler(promhttp.HandlerFor(p.Metrics, promhttp.HandlerOpts{})))
	echomw.Admin(e.Group("/admin/outbox", middleware.BasicAuth(srv.isAdmin)), p.Outbox)
	return srv
}

// What machines ask for every few seconds.
const (
	healthPath  = "/healthz"
	metricsPath = "/metrics"
)

// untraced are requests that are no trace to look at.
func untraced(c echo.Context) bool { return c.Path() == healthPath || c.Path() == metricsPath }

func (s *server) place(c echo.Context) error {
	var request orderRequest
	if err := decode(c, &request); err != nil {
		return err
	}
	answer, err := s.save(c, request, 1)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusCreated, answer[0])
}

func (s *server) placeBulk(c echo.Context) error {
	var request bulkRequest
	if err := decode(c, &request); err != nil {
		return err
	}
	answer, err := s.save(c, request.orderRequest, request.N)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusCreated, map[string]any{"orders": answer})
}

// placed is the answer to an order.
type placed struct {
	OrderID string `json:"order_id"`
	EventID string `json:"event_id"`
}

// save places n orders, and then fails if that is to be shown.
func (s *server) save(c echo.Context, request orderRequest, n int) ([]placed, error) {
	simulate, _ := simulationOf(c)
	orders, events := make([]Order, n), make([]outbox.Envelope, n)
	for i := range orders {
		orders[i], events[i] = newOrder(request, listenersFailure(simulate))
	}
	ids, err := s.shop.Place(c.Request().Context(), orders, events)
	if err != nil {
		return nil, err
	}
	switch simulate {
	case "handler-error":
		return nil, echo.NewHTTPError(http.StatusInternalServerError, "the handler failed (simulated)")
	case "panic":
		panic("the handler panicked (simulated)")
	}
	answer := make([]placed, n)
	for i := range orders {
		answer[i] = placed{OrderID: orders[i].ID, EventID: ids[i]}
	}
	return answer, nil
}

func (s *server) listOrders(c echo.Context) error {
	limit, err := limitOf(c)
	if err != nil {
		return err
	}
	orders, err := s.shop.Orders(c.Request().Context(), limit)
	if err != nil {
		return err
	}
	if orders == nil {
		orders = []Order{}
	}
	return c.JSON(http.StatusOK, map[string]any{"orders": orders})
}

func (s *server) listDeliveries(c echo.Context) error {
	limit, err := limitOf(c)
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, map[string]any{"deliveries": s.deliveries.list(c.QueryParam("order_id"), limit)})
}

const adminUser = "admin"

func (s *server) isAdmin(user, password string, _ echo.Context) (bool, error) {
	given, want := sha256.Sum256([]byte(user+":"+password)), sha256.Sum256([]byte(adminUser+":"+s.settings.Password))
	return subtle.ConstantTimeCompare(given[:], want[:]) == 1, nil
}

// answerError answers every failure in JSON. What the database said goes to the
// log.
func answerError(err error, c echo.Context) {
	if c.Response().Committed {
		return
	}
	status, answer := http.StatusInternalServerError, map[string]string{"error": "something went wrong; nothing was saved"}
	var bad *badRequest
	var known *echo.HTTPError
	var commit *echomw.CommitError
	switch {
	case errors.As(err, &bad):
		status, answer = http.StatusBadRequest, map[string]string{"error": bad.Error(), "field": bad.field}
	case errors.As(err, &commit) && errors.Is(err, outbox.ErrOutcomeUnknown):
		answer["error"] = "the database was lost while saving; the order may have been placed or not"
	case errors.As(err, &commit):
		answer["error"] = "the transaction did not commit; nothing was saved"
	case errors.As(err, &known):
		status, answer = known.Code, map[string]string{"error": fmt.Sprint(known.Message)}
	}
	if status >= http.StatusInternalServerError {
		slog.Warn("request failed", "method", c.Request().Method, "path", c.Path(), "status", status, "error", err)
	}
	if err := c.JSON(status, answer); err != nil {
		slog.Info("answering failed", "error", err)
	}
}

// serve opens the port when the app starts, and answers what has come before it
// stops.
func serve(lc fx.Lifecycle, shutdown fx.Shutdowner, s *server) {
	lc.Append(fx.StartStopHook(
		func(ctx context.Context) error {
			var config net.ListenConfig
			listener, err := config.Listen(ctx, "tcp", s.settings.Addr)
			if err != nil {
				return err
			}
			s.echo.Listener = listener
			go func() {
				if err := s.echo.Server.Serve(listener); err != nil && !errors.Is(err, http.ErrServerClosed) {
					slog.Error("serving", "error", err)
					_ = shutdown.Shutdown(fx.ExitCode(1))
				}
			}()
			return nil
		},
		func(ctx context.Context) error {
			// The outbox needs some of the time, too.
			ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			if err := s.echo.Server.Shutdown(ctx); err != nil {
				slog.Info("requests are cut off", "error", err)
				return s.echo.Server.Close()
			}
			return nil
		},
	))
	s.echo.Server.Handler = s.echo
}

// url is where the server can be reached from this machine.
func (s *server) url() string {
	_, port, _ := net.SplitHostPort(s.echo.Listener.Addr().String())
	host, _, err := net.SplitHostPort(s.settings.Addr)
	if err != nil || host == "" || net.ParseIP(host).IsUnspecified() {
		host = "localhost"
	}
	return "http://" + net.JoinHostPort(host, port)
}

// greet says where the service is and what to try.
func (s *server) greet() {
	password := s.settings.Password
	if s.settings.GivenPassword {
		password = "$ADMIN_PASSWORD"
	}
	fmt.Printf(`serving on %[1]s, with %[2]s on %[3]s
deliveries go to %[4]s; the password of %[5]s for /admin/outbox is %[6]s. Try:

  curl -d '{"customer":"Ada","item":"tea","quantity":2}' %[1]s/orders
  curl %[1]s/deliveries
  curl -u %[5]s:%[6]s %[1]s/admin/outbox/stats
  curl %[1]s%[7]s

`, s.url(), s.settings.ORM, s.where, s.settings.DataDir, adminUser, password, metricsPath)
}
