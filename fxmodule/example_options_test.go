package outboxfx_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"time"

	"go.uber.org/fx"

	outboxfx "github.com/outboxkit/outbox-go/fxmodule"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/relay"
)

// run starts an app, places an order in it, and stops it.
func run(opts ...fx.Option) {
	ctx := context.Background()
	var s *shop
	app := fx.New(fx.NopLogger, fx.Supply(new(sql.DB)), fx.Provide(newTransactor, newShop), fx.Options(opts...), fx.Populate(&s))
	check(app.Start(ctx))
	check(s.place(ctx, "o-1"))
	check(app.Stop(ctx)) // delivers what is queued
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// The module provides the outbox and its parts to the constructors of the app.
func ExampleNewModule() {
	run(
		outboxfx.NewModule(outboxfx.WithStore(memory)),
		fx.Invoke(func(ob *outbox.Outbox, w *outbox.Writer, dead *outbox.DeadLetters) {
			fmt.Println(ob != nil, w != nil, dead != nil)
		}),
	)
	// Output:
	// true true true
}

// A configuration in code. Package outboxconf reads one from YAML and the environment.
func ExampleWithConfig() {
	run(
		outboxfx.NewModule(outboxfx.WithStore(memory), outboxfx.WithConfig(outboxfx.Config{
			Mode:     outboxfx.MultiNode,
			Dispatch: outboxfx.DispatchConfig{Workers: 32},
			Poll:     outboxfx.PollConfig{Interval: time.Second},
		})),
		fx.Invoke(func(c outboxfx.Config) { fmt.Println(c.Mode, c.Dispatch.Workers) }),
	)
	// Output:
	// multi-node 32
}

// Mistakes of a configuration name their keys and fields.
func ExampleConfig_Validate() {
	err := outboxfx.Config{
		Mode:  outboxfx.SingleNode,
		Claim: outboxfx.ClaimConfig{LeaseDuration: time.Minute},
	}.Validate()
	fmt.Println(err)
	// Output:
	// claim-locking.lock-timeout (Config.Claim.LeaseDuration) is set, but the mode single-node does not have it; it is for multi-node, ordered-by-key
}

// An app with two outboxes gives each a name, and a database of that name.
func ExampleNamed() {
	type outboxes struct {
		fx.In
		Orders *outbox.Outbox
		Audit  *outbox.Outbox `name:"audit"`
	}
	run(
		outboxfx.NewModule(outboxfx.WithStore(memory)),
		outboxfx.NewModule(outboxfx.WithStore(memory), outboxfx.Named("audit")),
		fx.Supply(fx.Annotate(new(sql.DB), fx.ResultTags(`name:"audit"`))),
		fx.Invoke(func(o outboxes) { fmt.Println(o.Orders != o.Audit) }),
	)
	// Output:
	// true
}

// A binding is for the unnamed outbox, unless For names others.
func ExampleFor() {
	run(
		outboxfx.NewModule(outboxfx.WithStore(memory)),
		outboxfx.NewModule(outboxfx.WithStore(memory), outboxfx.Named("audit")),
		fx.Supply(fx.Annotate(new(sql.DB), fx.ResultTags(`name:"audit"`))),
		outboxfx.AsBinding(newOrderListener, outboxfx.For("", "audit")),
	)
	// Output:
	// delivered: OrderPlaced o-1
}

// An interceptor of the app may depend on what the app provides.
func ExampleAsInterceptor() {
	run(
		outboxfx.NewModule(outboxfx.WithStore(memory)),
		outboxfx.AsBinding(newOrderListener),
		fx.Supply(log.New(os.Stdout, "", 0)),
		outboxfx.AsInterceptor(func(l *log.Logger) outbox.Interceptor {
			return outbox.After(func(_ context.Context, env outbox.Envelope, err error) {
				l.Println("after", env.AggregateID, err)
			})
		}),
	)
	// Output:
	// delivered: OrderPlaced o-1
	// after o-1 <nil>
}

// A hook of the app sees every write.
func ExampleAsHook() {
	run(
		outboxfx.NewModule(outboxfx.WithStore(memory)),
		outboxfx.AsBinding(newOrderListener),
		outboxfx.AsHook(func() outbox.WriterHook {
			return outbox.WriterHook{BeforeWrite: func(_ context.Context, envs []outbox.Envelope) ([]outbox.Envelope, error) {
				fmt.Println("writing", envs[0].AggregateID)
				return envs, nil
			}}
		}),
	)
	// Output:
	// writing o-1
	// delivered: OrderPlaced o-1
}

// stdout is a publisher that prints. Packages relay/kafka, relay/nats and others have
// those for brokers.
type stdout struct{}

func (stdout) Publish(_ context.Context, messages []relay.Message) []error {
	fmt.Println("published to", messages[0].Topic)
	return nil
}

func (stdout) Ping(context.Context) error { return nil }

func (stdout) Close(context.Context) error {
	fmt.Println("closed")
	return nil
}

// The publisher is closed after the outbox has published what was queued.
func ExampleAsRelay() {
	run(
		outboxfx.NewModule(outboxfx.WithStore(memory)),
		outboxfx.AsRelay(func() relay.Config {
			return relay.Config{Publisher: stdout{}, Source: "/shop"}
		}, []relay.Route{relay.To("orders", orderPlaced.Kind())}),
	)
	// Output:
	// published to orders
	// closed
}

// A health check asks the publisher, which the app provides.
func ExampleAsRelay_health() {
	run(
		outboxfx.NewModule(outboxfx.WithStore(memory)),
		fx.Provide(func() relay.Publisher { return stdout{} }),
		outboxfx.AsRelay(func(p relay.Publisher) relay.Config {
			return relay.Config{Publisher: p, Source: "/shop"}
		}, []relay.Route{relay.To("orders", orderPlaced.Kind())}),
		fx.Invoke(func(p relay.Publisher) { fmt.Println("ping:", p.Ping(context.Background())) }),
	)
	// Output:
	// ping: <nil>
	// published to orders
	// closed
}

// A retry policy of your own takes the place of the settings retry.*.
func ExampleWithRetryPolicy() {
	attempts := make(chan int, 2)
	run(
		outboxfx.NewModule(
			outboxfx.WithStore(memory),
			outboxfx.WithRetryPolicy(outbox.RetryPolicyFunc(func(attempt int) time.Duration {
				attempts <- attempt
				return time.Minute
			})),
		),
		outboxfx.AsBinding(func() outbox.Binding {
			return orderPlaced.Listen(func(context.Context, order, outbox.Envelope) error {
				return errors.New("the mail server is away")
			})
		}),
	)
	fmt.Println("failures:", <-attempts)
	// Output:
	// failures: 1
}

// AsBinding takes what a topic's Listen returns.
func ExampleAsBinding() {
	run(
		outboxfx.NewModule(outboxfx.WithStore(memory)),
		outboxfx.AsBinding(func() outbox.Binding {
			return orderPlaced.Listen(func(_ context.Context, o order, _ outbox.Envelope) error {
				fmt.Println("mail for", o.ID)
				return nil
			})
		}),
	)
	// Output:
	// mail for o-1
}

// search is a listener of a type of its own.
type search struct{}

func (search) OnEvent(_ context.Context, env outbox.Envelope) error {
	fmt.Println("search:", env.AggregateID)
	return nil
}

// Two listeners of one event have names.
func ExampleAs() {
	run(
		outboxfx.NewModule(outboxfx.WithStore(memory)),
		outboxfx.AsListener(func() search { return search{} }, outboxfx.On("Order", "OrderPlaced"), outboxfx.As("search")),
		outboxfx.AsBinding(func() outbox.Binding {
			return orderPlaced.Listen(func(_ context.Context, o order, _ outbox.Envelope) error {
				fmt.Println("mail:", o.ID)
				return nil
			}, outbox.Named("mail"))
		}),
	)
	// Unordered output:
	// search: o-1
	// mail: o-1
}

// Hooks and interceptors that depend on nothing are values.
func ExampleWithHooks() {
	run(
		outboxfx.NewModule(
			outboxfx.WithStore(memory),
			outboxfx.WithHooks(outbox.WriterHook{AfterWrite: func(_ context.Context, envs []outbox.Envelope) {
				fmt.Println("written:", envs[0].AggregateID)
			}}),
			outboxfx.WithInterceptors(outbox.Before(func(_ context.Context, env outbox.Envelope) error {
				fmt.Println("before:", env.AggregateID)
				return nil
			})),
		),
		outboxfx.AsBinding(newOrderListener),
	)
	// Output:
	// written: o-1
	// before: o-1
	// delivered: OrderPlaced o-1
}

// counter counts the events that are delivered.
type counter struct {
	outbox.NopMetrics
	delivered int
}

func (c *counter) Delivered(outbox.EventKind, time.Duration) { c.delivered++ }

// Metrics of your own; packages fxprom and fxotel have those for Prometheus and
// OpenTelemetry.
func ExampleWithMetrics() {
	metrics := new(counter)
	run(
		outboxfx.NewModule(outboxfx.WithStore(memory), outboxfx.WithMetrics(metrics)),
		outboxfx.AsBinding(newOrderListener),
	)
	fmt.Println(metrics.delivered)
	// Output:
	// delivered: OrderPlaced o-1
	// 1
}

// An outbox logs to the *slog.Logger that the app provides. WithLogger gives it another
// one, such as that with an attribute.
func ExampleWithLogger() {
	run(
		fx.Supply(slog.New(slog.DiscardHandler)),
		outboxfx.NewModule(outboxfx.WithStore(memory), outboxfx.WithLogger(func(app *slog.Logger) *slog.Logger {
			return app.With("component", "outbox")
		})),
		outboxfx.AsBinding(newOrderListener),
	)
	// Output:
	// delivered: OrderPlaced o-1
}

// newNotifier stands for pgnotify.New, which is for PostgreSQL.
func newNotifier(*sql.DB) (outbox.Notifier, error) { panic("not run") }

// A notifier wakes the pollers of the other processes.
func ExampleWithNotifier() {
	module := outboxfx.NewModule(outboxfx.WithNotifier(newNotifier))
	fx.New(fx.Provide(newSQLDB), module).Run()
}
