package outboxfx_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/fx"

	outboxfx "github.com/outboxkit/outbox-go/fxmodule"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// absent is a dependency that no app here has.
type absent struct{}

func failingListener() (*inbox, error) { return nil, errSMTP }

func nilListener() *inbox { return nil }

func needyListener(*absent) *inbox { return newInbox() }

func otherInbox() *inbox { return newInbox() }

func countedBinding() outbox.Binding { return outbox.On("", "Counted", newInbox()) }

func newInterceptor() outbox.Interceptor {
	return outbox.Before(func(context.Context, outbox.Envelope) error { return nil })
}

func newHook() outbox.WriterHook { return outbox.WriterHook{} }

func failingConfig() (outboxfx.Config, error) { return outboxfx.Config{}, errSMTP }

func needyConfig(*absent) outboxfx.Config { return outboxfx.Config{} }

func TestWrongWiringIsAnErrorThatSaysWhatToDo(t *testing.T) {
	t.Parallel()
	const fxmodule = `"github.com/outboxkit/outbox-go/fxmodule"`
	pair := outboxfx.On("Order", "Placed")
	two := func(a, b outboxfx.Option) fx.Option {
		return fx.Options(outboxfx.NewModule(a, inMemory()), outboxfx.NewModule(b, inMemory()))
	}
	for _, tc := range []struct {
		name string
		opts fx.Option // in addition to a database and the module
		bare bool      // nothing else
		want []string  // in what fx.New says
		// in what fx.ValidateApp says; nil: the same, empty: nothing
		validate []string
	}{
		{name: "no database", bare: true, opts: outboxfx.Module, want: []string{"missing type: *sql.DB", fxmodule + ".(*module).build"}},
		{name: "no database of the name", opts: outboxfx.NewModule(outboxfx.Named("orders")), want: []string{`missing type: *sql.DB[name="orders"]`}},
		{name: "two unnamed modules", opts: outboxfx.NewModule(), want: []string{"twoModulesHaveOneNameUseNamed", "already provided by " + fxmodule}},
		{name: "two modules of one name", opts: two(outboxfx.Named("a"), outboxfx.Named("a")), want: []string{"twoModulesHaveOneNameUseNamed", `outboxfx.Name[name="a"]`}},
		{name: "a bad name", opts: outboxfx.NewModule(outboxfx.Named("a b")), want: []string{`"a b" cannot be the name of an outbox`}},
		{name: "an empty name", opts: outboxfx.NewModule(outboxfx.Named("")), want: []string{`"" cannot be the name of an outbox`}},

		{
			name: "the module is forgotten", bare: true, opts: outboxfx.AsListener(newInbox, pair),
			want:     []string{"outboxfx: the listener fxmodule_test.newInbox of Order/Placed is for the outbox, which no module makes; add outboxfx.Module to the app"},
			validate: []string{"missing type: *outbox.Outbox"},
		},
		{
			name: "a listener for an unknown outbox", opts: outboxfx.AsListener(newInbox, pair, outboxfx.For("oders")),
			want:     []string{`is for the outbox "oders", which no module makes; add outboxfx.NewModule(outboxfx.Named("oders")) to the app, or correct outboxfx.For, which may name [""]`},
			validate: []string{`missing type: *outbox.Outbox[name="oders"]`},
		},
		{
			name: "an interceptor for an unknown outbox", opts: outboxfx.AsInterceptor(newInterceptor, outboxfx.For("x")),
			want:     []string{`outboxfx: the interceptor fxmodule_test.newInterceptor is for the outbox "x"`},
			validate: []string{`missing type: *outbox.Outbox[name="x"]`},
		},
		{
			name: "a hook for an unknown outbox", opts: outboxfx.AsHook(newHook, outboxfx.For("", "x")),
			want:     []string{`outboxfx: the hook fxmodule_test.newHook is for the outbox "x"`},
			validate: []string{`missing type: *outbox.Outbox[name="x"]`},
		},
		{
			name:     "two listeners of one pair",
			opts:     fx.Options(outboxfx.AsListener(newInbox, outboxfx.On("Order", "Paid"), pair), outboxfx.AsListener(otherInbox, pair)),
			want:     []string{"the listener fxmodule_test.newInbox and the listener fxmodule_test.otherInbox: outbox: duplicate listener for Order/Placed"},
			validate: []string{},
		},
		{
			name:     "a listener and a binding of one pair",
			opts:     fx.Options(outboxfx.AsListener(newInbox, outboxfx.On("", "Counted")), outboxfx.AsBinding(countedBinding)),
			want:     []string{"the listener fxmodule_test.newInbox and the binding of fxmodule_test.countedBinding: outbox: duplicate listener"},
			validate: []string{},
		},
		{
			name:     "two listeners of one name",
			opts:     fx.Options(outboxfx.AsListener(newInbox, pair, outboxfx.As("mail")), outboxfx.AsListener(newInbox, pair, outboxfx.As("post")), outboxfx.AsListener(otherInbox, pair, outboxfx.As("mail"))),
			want:     []string{"the listener fxmodule_test.newInbox and the listener fxmodule_test.otherInbox: outbox: duplicate listener for Order/Placed: another one has the name \"mail\""},
			validate: []string{},
		},
		{
			name:     "a listener without a name beside one with a name",
			opts:     fx.Options(outboxfx.AsListener(newInbox, pair, outboxfx.As("mail")), outboxfx.AsListener(otherInbox, pair)),
			want:     []string{"the listener fxmodule_test.newInbox and the listener fxmodule_test.otherInbox: outbox: duplicate listener for Order/Placed: the others have names, such as mail; give each"},
			validate: []string{},
		},
		{name: "two names for a listener", opts: outboxfx.AsListener(newInbox, pair, outboxfx.As("a"), outboxfx.As("b")), want: []string{`AsListener takes one As, and has ["a" "b"]`}},
		{name: "a name for a binding", opts: outboxfx.AsBinding(countedBinding, outboxfx.As("a")), want: []string{"AsBinding takes no As"}},
		{name: "a name that cannot be", opts: outboxfx.AsListener(newInbox, pair, outboxfx.As("a\n")), want: []string{"binding.Name has a control character"}, validate: []string{}},
		{
			name: "a listener's constructor fails", opts: outboxfx.AsListener(failingListener, pair),
			want:     []string{"the listener fxmodule_test.failingListener of Order/Placed: smtp down", "wiring_test.go"},
			validate: []string{},
		},
		{name: "a listener is nil", opts: outboxfx.AsListener(nilListener, pair), want: []string{"the listener fxmodule_test.nilListener of Order/Placed", "is nil"}, validate: []string{}},
		{name: "a listener lacks a dependency", opts: outboxfx.AsListener(needyListener, pair), want: []string{`fxmodule_test".needyListener`, "missing type: *outboxfx_test.absent"}},
		{name: "a constructor of no listener", opts: outboxfx.AsListener(newPool, pair), want: []string{"AsListener is given fxmodule_test.newPool, which returns a *sql.DB and not a outbox.Listener"}},
		{name: "a listener and no constructor", opts: outboxfx.AsListener(newInbox(), pair), want: []string{"AsListener is given *outboxfx_test.inbox; it needs a constructor"}},
		{name: "nothing", opts: outboxfx.AsListener(nil, pair), want: []string{"AsListener is given <nil>; it needs a constructor"}},
		{name: "a nil constructor", opts: outboxfx.AsListener((func() *inbox)(nil), pair), want: []string{"AsListener is given a nil func() *outboxfx_test.inbox"}},
		{name: "a function of nothing", opts: outboxfx.AsListener(func() {}, pair), want: []string{"a constructor returns a outbox.Listener, or that and an error"}},
		{name: "no On", opts: outboxfx.AsListener(newInbox), want: []string{"needs On(aggregate, event)"}},
		{name: "On of no event", opts: outboxfx.AsListener(newInbox, outboxfx.On("Order", "")), want: []string{"EventType is required"}, validate: []string{}},
		{name: "On for a binding", opts: outboxfx.AsBinding(countedBinding, pair), want: []string{"AsBinding takes no On"}},
		{name: "a binding that is none", opts: outboxfx.AsBinding(newInbox), want: []string{"AsBinding is given fxmodule_test.newInbox, which returns a *outboxfx_test.inbox and not a outbox.Binding"}},
		{name: "an interceptor that is none", opts: outboxfx.AsInterceptor(newInbox), want: []string{"and not a outbox.Interceptor"}},
		{name: "an interceptor that is nil", opts: outboxfx.AsInterceptor(func() outbox.Interceptor { return nil }), want: []string{"building the outbox", "Interceptors"}, validate: []string{}},
		{name: "a hook that is none", opts: outboxfx.AsHook(newInbox), want: []string{"and not a outbox.WriterHook"}},
		{name: "a hook that needs the writer", opts: outboxfx.AsHook(func(*outbox.Writer) outbox.WriterHook { return outbox.WriterHook{} }), want: []string{"cycle detected"}},

		{name: "a bad config", opts: fx.Replace(outboxfx.Config{Mode: "multi"}), want: []string{`outboxfx: the configuration of the outbox: mode (Config.Mode) is "multi"; it must be one of single-node,`}, validate: []string{}},
		{name: "a config that cannot be made", opts: fx.Decorate(needyConfig), want: []string{"missing type: *outboxfx_test.absent"}},
		{name: "a config whose constructor fails", opts: fx.Decorate(failingConfig), want: []string{"failed to build outboxfx.Config: smtp down"}, validate: []string{}},
		{
			name: "one table for two outboxes", opts: fx.Options(two(outboxfx.Named("a"), outboxfx.Named("b")), fx.Provide(
				fx.Annotate(newPool, fx.ResultTags(`name:"a"`)), fx.Annotate(func(db *sql.DB) *sql.DB { return db }, fx.ParamTags(`name:"a"`), fx.ResultTags(`name:"b"`)))),
			want: []string{`outboxfx: the outbox "a" and the outbox "b" deliver from one table`}, validate: []string{},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			opts := []fx.Option{tc.opts, fx.NopLogger}
			if !tc.bare {
				opts = append([]fx.Option{fx.Supply(newPool()), outboxfx.NewModule(inMemory())}, opts...)
			}
			if tc.validate == nil {
				tc.validate = tc.want
			}
			for texts, err := range map[*[]string]error{&tc.want: fx.New(opts...).Err(), &tc.validate: fx.ValidateApp(opts...)} {
				if len(*texts) == 0 {
					require.NoError(t, err)
				}
				for _, want := range *texts {
					require.ErrorContains(t, err, want)
					require.NotContains(t, err.Error(), "makeFuncStub", "constructors made by reflection have names")
				}
			}
		})
	}
}

// fx says itself that a value of fx.Supply is one of reflect's functions.
func TestASecondConfigCollides(t *testing.T) {
	t.Parallel()
	err := newError(fx.Supply(newPool(), outboxfx.Config{}), outboxfx.Module)
	require.ErrorContains(t, err, "fxmodule.defaultConfigUseReplace")
	require.ErrorContains(t, err, "cannot provide outboxfx.Config")
}

func TestErrorsKeepWhatTheyWrap(t *testing.T) {
	t.Parallel()
	module, pair := outboxfx.NewModule(inMemory()), outboxfx.On("Order", "Placed")
	err := newError(fx.Supply(newPool()), module, outboxfx.AsListener(failingListener, pair))
	require.ErrorIs(t, err, errSMTP)
	err = newError(fx.Supply(newPool()), module, outboxfx.AsListener(newInbox, pair), outboxfx.AsListener(newInbox, pair))
	require.ErrorIs(t, err, outbox.ErrDuplicateListener)
	err = newError(fx.Supply(newPool()), module, fx.Replace(outboxfx.Config{Mode: "x"}))
	var key *outboxfx.KeyError
	require.ErrorAs(t, err, &key)
	require.Equal(t, "mode", key.Key)
}

// bareStore is a store without CreateSchema.
type bareStore struct{ outbox.Store }

func TestOptionsThatCannotBe(t *testing.T) {
	t.Parallel()
	yes, no := true, false
	with := func(c outboxfx.Config) outboxfx.Option { return outboxfx.WithConfig(c) }
	bare := outboxfx.WithStore(bareStore{outboxtest.NewStore()})
	for _, tc := range []struct {
		name string
		opts []outboxfx.Option
		want string
	}{
		{"a store that is none", []outboxfx.Option{outboxfx.WithStore("postgres")}, "WithStore of the outbox is given string; it needs a constructor"},
		{"a nil store", []outboxfx.Option{outboxfx.WithStore((*sqlstore.Store)(nil))}, "WithStore of the outbox: it is nil"},
		{"a constructor of a nil store", []outboxfx.Option{outboxfx.WithStore(func() outbox.Store { return nil })}, "WithStore of the outbox: it is nil"},
		{"a constructor that fails", []outboxfx.Option{outboxfx.WithStore(func() (outbox.Store, error) { return nil, errSMTP })}, "WithStore of the outbox: smtp down"},
		{"a constructor that cannot be called", []outboxfx.Option{outboxfx.WithStore(func(*absent) outbox.Store { return nil })}, "missing type: *outboxfx_test.absent"},
		{"two stores", []outboxfx.Option{inMemory(), inMemory()}, "WithStore is given twice; leave one out"},
		{"nil metrics", []outboxfx.Option{bare, outboxfx.WithMetrics(func() *counts { return nil })}, "WithMetrics of the outbox: it is nil"},
		{"a nil logger", []outboxfx.Option{bare, outboxfx.WithLogger((*slog.Logger)(nil))}, "WithLogger of the outbox: it is nil"},
		{"a nil notifier", []outboxfx.Option{bare, outboxfx.WithNotifier((*wire)(nil))}, "WithNotifier of the outbox: it is nil"},
		{"a notifier that is none", []outboxfx.Option{bare, outboxfx.WithNotifier("pgx")}, "WithNotifier of the outbox is given string; it needs a constructor func(dependencies…) outbox.Notifier"},
		{"a config that is none", []outboxfx.Option{outboxfx.WithConfig(func() error { return nil })}, "WithConfig of the outbox is given"},
		{"a config that cannot be made", []outboxfx.Option{outboxfx.WithConfig(needyConfig)}, "missing type: *outboxfx_test.absent"},
		{"a table for a store", []outboxfx.Option{bare, with(outboxfx.Config{Table: "t"})}, "table-name (Config.Table) is set, but WithStore's store names its table itself"},
		{"unique keys of another store", []outboxfx.Option{bare, with(outboxfx.Config{UniqueKeys: true})}, "unique-keys (Config.UniqueKeys) is true, but WithStore's store has its options itself"},
		{"a schema that the store cannot create", []outboxfx.Option{bare, with(outboxfx.Config{CreateSchema: true})}, "create-schema (Config.CreateSchema) is true, but WithStore's outboxfx_test.bareStore has no CreateSchema"},
		{"two retry policies", []outboxfx.Option{bare, outboxfx.WithRetryPolicy(outbox.ExponentialBackoff(1, 1)), with(outboxfx.Config{Retry: outboxfx.RetryConfig{MaxDelay: 1}})}, "retry (Config.Retry) is set, but WithRetryPolicy replaces it"},
		{"metrics without any", []outboxfx.Option{bare, with(outboxfx.Config{Metrics: outboxfx.MetricsConfig{Enabled: &yes}})}, "metrics.enabled (Config.Metrics.Enabled) is true, but the module has no metrics; give NewModule fxprom.Metrics,"},
		{"traces without any", []outboxfx.Option{bare, with(outboxfx.Config{Tracing: outboxfx.TracingConfig{Enabled: &yes}})}, "tracing.enabled (Config.Tracing.Enabled) is true, but the module has no tracing; give NewModule fxotel.Tracing"},
		{"metrics off without any", []outboxfx.Option{bare, with(outboxfx.Config{Metrics: outboxfx.MetricsConfig{Enabled: &no}})}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			err := newError(fx.Supply(newPool()), outboxfx.NewModule(tc.opts...))
			if tc.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.want)
			require.NotContains(t, err.Error(), "makeFuncStub")
		})
	}
}

func TestTwoNodesMayShareATable(t *testing.T) {
	t.Parallel()
	db, multi := newPool(), outboxfx.WithConfig(outboxfx.Config{Mode: "MULTI_NODE"})
	require.NoError(t, newError(named("a", db), named("b", db),
		outboxfx.NewModule(outboxfx.Named("a"), inMemory(), multi), outboxfx.NewModule(outboxfx.Named("b"), inMemory(), multi)))
}

// unreachable is a database that does not answer until the context ends.
type unreachable struct{}

func (unreachable) Connect(ctx context.Context) (driver.Conn, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (unreachable) Driver() driver.Driver { return nil }

func TestADatabaseThatDoesNotAnswerIsGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db, begun := sql.OpenDB(unreachable{}), time.Now()
		defer func() { require.NoError(t, db.Close()) }()
		err := newError(fx.Supply(db), outboxfx.Module)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "outboxfx: detecting the database of the outbox, which WithStore makes unnecessary")
		require.Equal(t, 10*time.Second, time.Since(begun))
	})
}
