// Echo-fx-demo is an order service: an echo API whose requests each have a
// transaction, an outbox that delivers the orders placed to a listener, and an
// fx app that wires it. Try it with
//
//	go run ./samples/echo-fx-demo        # serves on :8080
//	go run ./samples/echo-fx-demo -tour  # shows itself what it does
//	go run ./samples/echo-fx-demo -h     # the flags and variables
//
// GET /metrics is for Prometheus. With OTEL_TRACES_EXPORTER=console the service
// prints its spans, and with otlp it sends them to OTEL_EXPORTER_OTLP_ENDPOINT
// over HTTP. A request, the write of its event, each delivery and what the
// listener does then are one trace:
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

// newApp is the whole service.
func newApp(settings Settings, provider trace.TracerProvider, more ...fx.Option) *fx.App {
	return fx.New(
		fx.Supply(settings),
		fx.Provide(
			openDatabase,  // *sql.DB and what kind it is
			newShop,       // orders and their events, with the ORM of the settings
			newDeliveries, // what the listener got
			newServer,     // the API
		),
		observed(provider), // the outbox, with metrics and traces
		fx.Decorate(outboxConfig),
		outboxfx.AsListener(newWarehouse, outboxfx.On(orderAggregate, orderPlacedEvent)),
		outboxfx.AsHook(newCommitTimes),
		fx.Invoke(serve), // the last to start and the first to stop
		fx.WithLogger(func() fxevent.Logger { return fxevent.NopLogger }),
		fx.Options(more...),
	)
}

// run starts the service and stops it at SIGTERM, or shows it.
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
	srv.greet() // from now on SIGTERM is waited for
	signal := <-signals
	slog.Info("stopping", "signal", signal.Signal)
	return stop(app)
}

func start(app *fx.App) error {
	ctx, cancel := context.WithTimeout(context.Background(), app.StartTimeout())
	defer cancel()
	return app.Start(ctx)
}

// stop answers the requests that have come and delivers what is queued.
func stop(app *fx.App) error {
	ctx, cancel := context.WithTimeout(context.Background(), app.StopTimeout())
	defer cancel()
	if err := app.Stop(ctx); err != nil {
		return errors.Join(errors.New("stopping"), err)
	}
	return nil
}
