package main

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/fx"
	"go.uber.org/fx/fxevent"

	"github.com/outboxkit/outbox-go/adapters/pgnotify"
	"github.com/outboxkit/outbox-go/adapters/sqltx"
	outboxfx "github.com/outboxkit/outbox-go/fxmodule"
	"github.com/outboxkit/outbox-go/fxmodule/outboxconf"
	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/relay"
)

func TestTheShopWrites(t *testing.T) {
	t.Parallel()
	db := testdb.Open(t, adaptertest.Main()[0])
	var s *shop
	app := fx.New(
		fx.NopLogger, fx.Supply(db.DB), fx.Provide(newAdapter, newShop),
		outboxfx.Module,
		outboxfx.AsBinding(newOrderListener),
		fx.Replace(outboxfx.Config{Mode: outboxfx.MultiNode, CreateSchema: true}),
		fx.Populate(&s),
	)
	require.NoError(t, app.Start(t.Context()))
	require.NoError(t, s.place(t.Context(), "o-1"))
	require.NoError(t, app.Stop(t.Context()))
	var done int
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM outbox_event WHERE status = 1").Scan(&done))
	require.Equal(t, 1, done)
}

func TestTheAppsAreValid(t *testing.T) {
	t.Parallel()
	for name, option := range map[string]fx.Option{
		"relay": brokered(), "named": named(), "shards": shards(), "loaded": loaded(), "notified": notified(), "annotated": annotated(),
	} {
		require.NoError(t, fx.ValidateApp(option), name)
	}
}

// Settings are the app's own configuration.
type Settings struct{ Broker string }

// Health is the app's own health check.
type Health struct{}

func (*Health) Add(string, func(context.Context) error) {}

type printer struct{}

func newPublisher(Settings) (relay.Publisher, error) { return printer{}, nil }

func (printer) Publish(_ context.Context, messages []relay.Message) []error {
	fmt.Println(messages[0].Topic)
	return make([]error, len(messages))
}

func (printer) Ping(context.Context) error  { return nil }
func (printer) Close(context.Context) error { return nil }

// smtp is a mail server of the app.
type smtp struct{}

type mailer struct{ server *smtp }

func newMailer(server *smtp) *mailer { return &mailer{server} }

func (*mailer) OnEvent(context.Context, outbox.Envelope) error {
	return nil
}

func newAuditBinding() outbox.Binding {
	return outbox.On("", "Audited", outbox.ListenerFunc(func(context.Context, outbox.Envelope) error { return nil }))
}

func annotated() fx.Option {
	return fx.Options(
		fx.Provide(newSQLDB, fx.Annotate(func() *smtp { return &smtp{} }, fx.ResultTags(`name:"smtp"`))), outboxfx.Module,
		outboxfx.AsListener(
			fx.Annotate(newMailer, fx.ParamTags(`name:"smtp"`), fx.As(new(outbox.Listener))),
			outboxfx.On("Order", "OrderPlaced")),
		fx.Provide(fx.Annotate(newAuditBinding, fx.ResultTags(`group:"outbox"`))), // returns an outbox.Binding
	)
}

func brokered() fx.Option {
	routes := []relay.Route{relay.To("orders", orderPlaced.Kind())}
	return fx.Options(
		fx.Provide(newSQLDB), outboxfx.Module, fx.Supply(Settings{}, new(Health)),
		fx.Provide(newPublisher), // such as relaynats.New with the settings of the app
		outboxfx.AsRelay(func(p relay.Publisher) relay.Config {
			return relay.Config{Publisher: p, Source: "/orders"}
		}, routes),
		fx.Invoke(func(p relay.Publisher, health *Health) { health.Add("broker", p.Ping) }),
	)
}

func newOrdersDB(lc fx.Lifecycle) (*sql.DB, error) { return newSQLDB(lc) }
func newStockDB(lc fx.Lifecycle) (*sql.DB, error)  { return newSQLDB(lc) }
func loadOrders() (outboxfx.Config, error)         { return outboxfx.Config{}, nil }

type audit struct{}

func newAudit() audit { return audit{} }

func (audit) OnEvent(context.Context, outbox.Envelope) error {
	return nil
}

type deps struct {
	fx.In
	DB     *sql.DB        `name:"orders"`
	Writer *outbox.Writer `name:"orders"`
}

func newOrdersAdapter(d deps) (*sqltx.Adapter, error) { return sqltx.New(d.DB, d.Writer) }

func named() fx.Option {
	return fx.Options(
		fx.Provide(
			fx.Annotated{Name: "orders", Target: newOrdersDB}, // *sql.DB
			fx.Annotated{Name: "stock", Target: newStockDB},
		),
		outboxfx.NewModule(outboxfx.Named("orders"), outboxfx.WithConfig(loadOrders)),
		outboxfx.NewModule(outboxfx.Named("stock")),
		outboxfx.AsListener(newAudit, outboxfx.On("", "Audited"), outboxfx.For("orders", "stock")), // one value for both
		fx.Provide(newOrdersAdapter), fx.Invoke(func(*sqltx.Adapter) {}),
	)
}

func shards() fx.Option {
	return fx.Options(
		fx.Provide(fx.Annotated{Name: "shard-0", Target: newOrdersDB}, fx.Annotated{Name: "shard-1", Target: newStockDB}),
		fx.Supply(outbox.NewSharedWorkers(16)),
		outboxfx.NewModule(outboxfx.Named("shard-0")),
		outboxfx.NewModule(outboxfx.Named("shard-1")),
		outboxfx.AsBinding(newOrderListener, outboxfx.For("shard-0", "shard-1")),
	)
}

func loaded() fx.Option {
	return fx.Options(
		fx.Provide(newSQLDB), outboxfx.Module,
		fx.Decorate(func() (outboxfx.Config, error) { return outboxconf.Load("outbox.yaml") }),
	)
}

func quiet() fx.Option {
	return fx.Options(
		fx.WithLogger(func() fxevent.Logger {
			l := &fxevent.SlogLogger{Logger: slog.Default()}
			l.UseLogLevel(slog.LevelDebug) // errors stay at slog.LevelError
			return l
		}),
	)
}

// It changes slog.Default, so it is not parallel.
func TestFxsOwnLogHasTheErrorsAlone(t *testing.T) {
	var log bytes.Buffer
	previous := slog.Default()
	t.Cleanup(func() { slog.SetDefault(previous) })
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	db := testdb.Open(t, adaptertest.Main()[0])
	app := func(c outboxfx.Config) *fx.App {
		return fx.New(quiet(), fx.Supply(db.DB), outboxfx.Module, fx.Replace(c))
	}
	require.NoError(t, app(outboxfx.Config{}).Err())
	require.Empty(t, log.String())
	require.Error(t, app(outboxfx.Config{Mode: "multi"}).Err())
	require.Contains(t, log.String(), "level=ERROR")
	require.Contains(t, log.String(), "it must be one of single-node")
}

func notified() fx.Option {
	return fx.Options(
		fx.Provide(newSQLDB),
		outboxfx.NewModule(outboxfx.WithNotifier(pgnotify.New)), // which takes the *sql.DB
	)
}
