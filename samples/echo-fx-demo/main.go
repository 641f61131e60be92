// Echo-fx-demo is an order service: an Echo API with a transaction for each
// request, GORM for the database, an outbox that delivers the placed orders to a
// listener, and an fx app that wires them.
//
//	go run ./samples/echo-fx-demo        # serves on :8080
//	go run ./samples/echo-fx-demo -tour  # tries everything once and ends
//	go run ./samples/echo-fx-demo -h     # prints the flags and variables
//
// GET /metrics is for Prometheus. With OTEL_TRACES_EXPORTER=console the service prints its spans;
// with otlp it sends them to OTEL_EXPORTER_OTLP_ENDPOINT over HTTP. A request, the write of the
// event, each delivery and the work of the listener are in the same trace:
//
//	POST /orders
//	└─ write Order/OrderPlaced
//	   └─ deliver Order/OrderPlaced
//	      └─ ship order
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"

	"go.opentelemetry.io/otel/trace"
	"go.uber.org/fx"
	"go.uber.org/fx/fxevent"

	outboxgorm "github.com/outboxkit/outbox-go/adapters/gorm"
	outboxfx "github.com/outboxkit/outbox-go/fxmodule"
)

func main() {
	settings, err := readSettings(os.Args[1:], os.Getenv)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err == nil {
		err = run(settings)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "echo-fx-demo:", err)
		os.Exit(1)
	}
}

// newApp makes the whole service.
func newApp(settings Settings, provider trace.TracerProvider, more ...fx.Option) *fx.App {
	return fx.New(
		fx.Supply(settings),
		fx.Provide(
			openDatabase,   // *sql.DB, which the outbox uses too
			openGORM,       // *gorm.DB on it
			outboxgorm.New, // writes events in GORM's transactions
			newShop,        // the orders
			newDeliveries,  // the deliveries that the listener received
			newDashboard,   // the outbox's page
			newServer,      // the API
		),
		observedOutbox(provider),
		outboxfx.AsListener(newWarehouse, outboxfx.On(orderAggregate, orderPlacedEvent)),
		faultyListeners(),
		fx.Invoke(serve), // the last to start and the first to stop
		fx.WithLogger(func() fxevent.Logger { return fxevent.NopLogger }),
		fx.Options(more...),
	)
}

// run serves until SIGTERM, or takes the tour.
func run(settings Settings) error {
	provider, flush, err := newTracerProvider(settings)
	if err != nil {
		return err
	}
	defer flush()
	if settings.Tour {
		return tour(settings, provider)
	}
	var srv *server
	app := newApp(settings, provider, fx.Populate(&srv))
	if err := start(app); err != nil {
		return err
	}
	signals := app.Wait()
	srv.greet() // SIGTERM is handled from here on
	signal := <-signals
	slog.Info("stopping", "signal", signal.Signal)
	return stop(app)
}

func start(app *fx.App) error {
	ctx, cancel := context.WithTimeout(context.Background(), app.StartTimeout())
	defer cancel()
	return app.Start(ctx)
}

// stop answers the requests under way and delivers the queued events.
func stop(app *fx.App) error {
	ctx, cancel := context.WithTimeout(context.Background(), app.StopTimeout())
	defer cancel()
	if err := app.Stop(ctx); err != nil {
		return errors.Join(errors.New("stopping"), err)
	}
	return nil
}
