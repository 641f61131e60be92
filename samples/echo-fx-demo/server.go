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
	"strconv"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/fx"

	outboxgorm "github.com/outboxkit/outbox-go/adapters/gorm"
	"github.com/outboxkit/outbox-go/dashboard"
	"github.com/outboxkit/outbox-go/echomw"
	"github.com/outboxkit/outbox-go/httptx"
	"github.com/outboxkit/outbox-go/idempotency"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/samples/internal/database"
)

// server is the HTTP API.
type server struct {
	http.Server
	listener   net.Listener
	shop       *shop
	deliveries *deliveries
	settings   Settings
	where      string // the database
	page       *dashboard.Dashboard
}

// serverParams are the server's dependencies.
type serverParams struct {
	fx.In

	Settings   Settings
	DB         *database.DB
	Shop       *shop
	Adapter    *outboxgorm.Adapter
	Deliveries *deliveries
	Outbox     *outbox.Outbox
	Page       *dashboard.Dashboard
	Metrics    *prometheus.Registry
	Traces     trace.TracerProvider
}

func newServer(lc fx.Lifecycle, p serverParams) (*server, error) {
	s := &server{shop: p.Shop, deliveries: p.Deliveries, settings: p.Settings, where: p.DB.Where, page: p.Page}
	keys, err := idempotency.New(idempotency.Config{DB: p.DB.DB, Dialect: idempotency.Dialect(p.DB.Kind)})
	if err != nil {
		return nil, err
	}
	lc.Append(fx.StartHook(keys.CreateSchema))
	// The response is sent after the commit. The body is read before the transaction begins, so
	// that a slow client holds no transaction. A client may send an order again with its key.
	transaction, err := echomw.TransactionConfig{
		Transactor: faultyTransactor{p.Adapter}, ReadBody: maxBody,
		Idempotency: &httptx.Idempotency{Keys: keys, MaxBody: maxBody},
	}.ToMiddleware()
	if err != nil {
		return nil, err
	}
	e := echo.New()
	e.HTTPErrorHandler = answerError
	e.Use(nameRoute, recovered, middleware.BodyLimit(strconv.Itoa(maxBody)+"B"))

	s.addPage(e, transaction)
	e.GET("/orders", s.listOrders)
	e.POST("/orders", s.place, readSimulation, transaction, failHandler)
	e.POST("/orders/bulk", s.placeBulk, readSimulation, transaction, failHandler)
	e.GET("/deliveries", s.listDeliveries)
	e.GET(healthPath, echomw.Health(echomw.HealthConfig{Outbox: p.Outbox}))
	e.GET(metricsPath, echo.WrapHandler(promhttp.HandlerFor(p.Metrics, promhttp.HandlerOpts{})))
	echomw.Admin(e.Group("/admin/outbox", middleware.BasicAuth(s.isAdmin)), p.Outbox, echomw.Access{Authorize: s.roleOf})

	s.Handler, s.ReadHeaderTimeout, s.ReadTimeout = traced(e, p.Traces), 5*time.Second, 10*time.Second
	return s, nil
}

// recovered turns a panic into an error for answerError.
var recovered = middleware.RecoverWithConfig(middleware.RecoverConfig{DisablePrintStack: true, DisableErrorHandler: true})

const adminUser = "admin"

func (s *Settings) isAdmin(user, password string) bool {
	given, want := sha256.Sum256([]byte(user+":"+password)), sha256.Sum256([]byte(adminUser+":"+s.Password))
	return subtle.ConstantTimeCompare(given[:], want[:]) == 1
}

func (s *server) isAdmin(user, password string, _ echo.Context) (bool, error) {
	return s.settings.isAdmin(user, password), nil
}

// roleOf returns the role of users whom isAdmin has let in.
func (s *server) roleOf(*http.Request) (string, echomw.Role) {
	return adminUser, echomw.ReadPayloads | echomw.Operate
}

// serve opens the port when the app starts. When the app stops, the requests
// under way are answered first.
func serve(lc fx.Lifecycle, shutdown fx.Shutdowner, s *server) {
	lc.Append(fx.StartStopHook(
		func(ctx context.Context) (err error) {
			var config net.ListenConfig
			if s.listener, err = config.Listen(ctx, "tcp", s.settings.Addr); err != nil {
				return err
			}
			go func() {
				if err := s.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
					slog.Error("serving", "error", err)
					_ = shutdown.Shutdown(fx.ExitCode(1))
				}
			}()
			return nil
		},
		func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, 5*time.Second) // the outbox needs some of the time too
			defer cancel()
			if err := s.Shutdown(ctx); err != nil {
				slog.Info("requests are cut off", "error", err)
				return s.Close()
			}
			return s.page.Wait(ctx)
		},
	))
}

// url returns the address for clients on this machine.
func (s *server) url() string {
	_, port, _ := net.SplitHostPort(s.listener.Addr().String())
	host, _, err := net.SplitHostPort(s.settings.Addr)
	if err != nil || host == "" || net.ParseIP(host).IsUnspecified() {
		host = "localhost"
	}
	return "http://" + net.JoinHostPort(host, port)
}

// greet prints the addresses of the service, and requests to try.
func (s *server) greet() {
	password := s.settings.Password
	if s.settings.GivenPassword {
		password = "$ADMIN_PASSWORD"
	}
	fmt.Printf(`serving on %[1]s, with %[2]s
deliveries go to %[3]s; the password of %[4]s for /admin/outbox is %[5]s. Open

  %[1]s/         buttons that place orders
  %[1]s/outbox/  what became of their events

or try:

  curl --json '{"customer":"Ada","item":"tea","quantity":2}' %[1]s/orders
  curl %[1]s/deliveries
  curl -u %[4]s:%[5]s %[1]s/admin/outbox/stats
  curl %[1]s%[6]s

`, s.url(), s.where, s.settings.DataDir, adminUser, password, metricsPath)
}
