package outboxfx_test

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"testing"

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

func needyConfig(*absent) (outboxfx.Config, error) {
	return outboxfx.Config{Mode: outboxfx.Ordered}, nil
}

var errSMTP = errors.New("smtp down")

func TestWrongWiringIsAnErrorOfTheApp(t *testing.T) {
	t.Parallel()
	orderPlaced := outboxfx.On("Order", "Placed")
	everyone := func(db *sql.DB) []fx.Option { return []fx.Option{fx.Supply(db), outboxfx.Module} }
	for _, tc := range []struct {
		name string
		opts []fx.Option // in addition to a database and the module
		bare bool        // nothing else
		want []string    // in what fx.New says
		// in what fx.ValidateApp says; nil: the same, empty: nothing
		validate []string
	}{
		{name: "no database", bare: true, opts: []fx.Option{outboxfx.Module}, want: []string{"failed to build *outbox.Outbox", "missing type: *sql.DB"}},
		{
			name: "no database of the name", opts: []fx.Option{outboxfx.NewModule(outboxfx.Named("orders"))},
			want: []string{`failed to build *outbox.Outbox[name="orders"]`, `missing type: *sql.DB[name="orders"]`},
		},
		{name: "two unnamed modules", opts: []fx.Option{outboxfx.NewModule()}, want: []string{"OneModulePerName", "already provided"}},
		{
			name: "two modules of one name", opts: []fx.Option{outboxfx.NewModule(outboxfx.Named("a")), outboxfx.NewModule(outboxfx.Named("a"))},
			want: []string{`OneModulePerName[name="a"]`, "already provided"},
		},
		{name: "a name that is none", opts: []fx.Option{outboxfx.NewModule(outboxfx.Named("a b"))}, want: []string{`"a b" is no name for an outbox`}},
		{name: "an empty name", opts: []fx.Option{outboxfx.NewModule(outboxfx.Named(""))}, want: []string{"Named is given no name"}},

		{name: "a listener without a module", bare: true, opts: []fx.Option{outboxfx.AsListener(newInbox, orderPlaced)}, want: []string{"missing type: *outbox.Outbox"}},
		{
			name: "a listener for an unknown outbox", opts: []fx.Option{outboxfx.AsListener(newInbox, orderPlaced, outboxfx.For("oders"))},
			want:     []string{`outboxfx: the listener fxmodule_test.newInbox is for the outbox "oders", which no module of the app makes; there is the outbox`},
			validate: []string{`missing type: *outbox.Outbox[name="oders"]`},
		},
		{
			name: "an interceptor for an unknown outbox", opts: []fx.Option{outboxfx.AsInterceptor(noInterceptor, outboxfx.For("x"))},
			want:     []string{`outboxfx: the interceptor fxmodule_test.noInterceptor is for the outbox "x"`},
			validate: []string{`missing type: *outbox.Outbox[name="x"]`},
		},
		{
			name: "a hook for an unknown outbox", opts: []fx.Option{outboxfx.AsHook(noHook, outboxfx.For("", "x"))},
			want:     []string{`outboxfx: the hook fxmodule_test.noHook is for the outbox "x"`},
			validate: []string{`missing type: *outbox.Outbox[name="x"]`},
		},
		{
			name: "two listeners of one pair", opts: []fx.Option{
				outboxfx.AsListener(newInbox, outboxfx.On("Order", "Paid"), orderPlaced), outboxfx.AsListener(failedInboxOther, orderPlaced),
			},
			want:     []string{"duplicate listener of the outbox for Order/Placed: the listener fxmodule_test.newInbox and the listener fxmodule_test.failedInboxOther"},
			validate: []string{},
		},
		{
			name: "one listener with a pair twice", opts: []fx.Option{outboxfx.AsListener(newInbox, orderPlaced, orderPlaced)},
			want: []string{"duplicate listener of the outbox for Order/Placed"}, validate: []string{},
		},
		{
			name: "a listener and a binding of one pair", opts: []fx.Option{
				outboxfx.AsListener(newInbox, outboxfx.On("", "Counted")), outboxfx.AsBinding(countedBinding),
			},
			want:     []string{"duplicate listener of the outbox for __GLOBAL__/Counted: the listener fxmodule_test.newInbox and the binding fxmodule_test.countedBinding"},
			validate: []string{},
		},
		{
			name: "a listener's constructor fails", opts: []fx.Option{outboxfx.AsListener(failingListener, orderPlaced)},
			want: []string{"the listener of Order/Placed", "failingListener", "wiring_test.go", "smtp down"}, validate: []string{},
		},
		{
			name: "a listener's constructor returns nil", opts: []fx.Option{outboxfx.AsListener(nilListener, orderPlaced)},
			want: []string{"outboxfx: the listener fxmodule_test.nilListener of Order/Placed", "Listener is nil"}, validate: []string{},
		},
		{
			name: "a listener lacks a dependency", opts: []fx.Option{outboxfx.AsListener(needyListener, orderPlaced)},
			want: []string{"the listener of Order/Placed", "needyListener", "missing type: *outboxfx_test.absent"},
		},
		{
			name: "a constructor of no listener", opts: []fx.Option{outboxfx.AsListener(func() *sql.DB { return nil }, orderPlaced)},
			want: []string{"AsListener is given", "a constructor of *sql.DB, which is no outbox.Listener"},
		},
		{name: "a listener and no constructor", opts: []fx.Option{outboxfx.AsListener(newInbox(), orderPlaced)}, want: []string{"AsListener is given a *outboxfx_test.inbox; it wants a constructor"}},
		{name: "nothing", opts: []fx.Option{outboxfx.AsListener(nil, orderPlaced)}, want: []string{"AsListener is given nil"}},
		{name: "a nil constructor", opts: []fx.Option{outboxfx.AsListener((func() *inbox)(nil), orderPlaced)}, want: []string{"AsListener is given a nil func() *outboxfx_test.inbox"}},
		{name: "a function of nothing", opts: []fx.Option{outboxfx.AsListener(func() {}, orderPlaced)}, want: []string{"must return a outbox.Listener, or that and an error"}},
		{
			name: "a function of too much", opts: []fx.Option{outboxfx.AsListener(func() (*inbox, int) { return nil, 0 }, orderPlaced)},
			want: []string{"must return a outbox.Listener, or that and an error"},
		},
		{name: "no On", opts: []fx.Option{outboxfx.AsListener(newInbox)}, want: []string{"needs On(aggregate, event)"}},
		{name: "On of no event", opts: []fx.Option{outboxfx.AsListener(newInbox, outboxfx.On("Order", ""))}, want: []string{`On("Order", ""), which names no event`}},
		{name: "For the same twice", opts: []fx.Option{outboxfx.AsListener(newInbox, orderPlaced, outboxfx.For("", ""))}, want: []string{"AsListener is for the outbox twice"}},
		{name: "For nothing", opts: []fx.Option{outboxfx.AsBinding(countedBinding, outboxfx.For())}, want: []string{"AsBinding is given For without a name"}},
		{name: "For what is no name", opts: []fx.Option{outboxfx.AsHook(noHook, outboxfx.For("a b"))}, want: []string{`"a b" is no name for an outbox`}},
		{name: "a binding that is none", opts: []fx.Option{outboxfx.AsBinding(newInbox)}, want: []string{"AsBinding is given fxmodule_test.newInbox, a constructor of *outboxfx_test.inbox, which is no outbox.Binding"}},
		{
			name: "an empty binding", opts: []fx.Option{outboxfx.AsBinding(func() outbox.Binding { return outbox.Binding{} })},
			want: []string{"outboxfx: the binding", "EventType is required"}, validate: []string{},
		},
		{
			name: "no bindings", opts: []fx.Option{outboxfx.AsBinding(func() []outbox.Binding { return nil })},
			want: []string{"there is no binding in it"}, validate: []string{},
		},
		{
			name: "an interceptor that is nil", opts: []fx.Option{outboxfx.AsInterceptor(func() outbox.Interceptor { return nil })},
			want: []string{"outboxfx: the interceptor", "it is nil"}, validate: []string{},
		},
		{name: "an interceptor that is none", opts: []fx.Option{outboxfx.AsInterceptor(newInbox)}, want: []string{"which is no outbox.Interceptor"}},
		{name: "a hook that is none", opts: []fx.Option{outboxfx.AsHook(newInbox)}, want: []string{"which is no outbox.WriterHook"}},
		{
			name: "a hook that needs the writer", opts: []fx.Option{outboxfx.AsHook(func(*outbox.Writer) outbox.WriterHook { return outbox.WriterHook{} })},
			want: []string{"cycle detected"},
		},

		{name: "a bad config", opts: []fx.Option{fx.Supply(outboxfx.Config{Mode: "multi"})}, want: []string{`outboxfx: the configuration of the outbox: mode is "multi"`}, validate: []string{}},
		{
			name: "a config that cannot be made", opts: []fx.Option{fx.Provide(needyConfig)},
			want:     []string{"outboxfx: the Config of the outbox has a constructor that needs a *outboxfx_test.absent, which the app does not provide"},
			validate: []string{},
		},
		{
			name: "a config whose constructor fails", opts: []fx.Option{fx.Provide(func() (outboxfx.Config, error) { return outboxfx.LoadConfig("no such file") })},
			want: []string{"no such file"}, validate: []string{},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			opts := tc.opts
			if !tc.bare {
				opts = append(everyone(openSQLite(t)), opts...)
			}
			opts = append(opts, fx.WithLogger(quiet))
			err := fx.New(opts...).Err()
			for _, want := range tc.want {
				require.ErrorContains(t, err, want)
			}
			err = fx.ValidateApp(opts...)
			if tc.validate == nil {
				tc.validate = tc.want
			}
			if len(tc.validate) == 0 {
				require.NoError(t, err)
			}
			for _, want := range tc.validate {
				require.ErrorContains(t, err, want)
			}
		})
	}
}

func TestErrorsKeepWhatTheyWrap(t *testing.T) {
	t.Parallel()
	pair := outboxfx.On("Order", "Placed")
	err := newError(fx.Supply(openSQLite(t)), outboxfx.Module, outboxfx.AsListener(failingListener, pair))
	require.ErrorIs(t, err, errSMTP)
	err = newError(fx.Supply(openSQLite(t)), outboxfx.Module, outboxfx.AsListener(newInbox, pair), outboxfx.AsListener(newInbox, pair))
	require.ErrorIs(t, err, outbox.ErrDuplicateListener)
	err = newError(fx.Supply(openSQLite(t), outboxfx.Config{Mode: "x"}), outboxfx.Module)
	var key *outboxfx.KeyError
	require.ErrorAs(t, err, &key)
	require.Equal(t, "mode", key.Key)
}

func TestADatabaseThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	db := openSQLite(t)
	require.NoError(t, db.Close())
	err := newError(fx.Supply(db), outboxfx.Module)
	require.ErrorContains(t, err, "outboxfx: choosing the store of the outbox, which WithStore would do without asking")
	require.ErrorContains(t, err, "sql: database is closed")
	err = newError(fx.Provide(func() *sql.DB { return nil }), outboxfx.Module)
	require.ErrorContains(t, err, "is nil")
	err = newError(fx.Provide(func() *sql.DB { return nil }), outboxfx.NewModule(outboxfx.WithStore(sqlstore.SQLite())))
	require.ErrorContains(t, err, "outboxfx: making the outbox: outbox: Config.DB")
}

func TestOptionsThatCannotBe(t *testing.T) {
	t.Parallel()
	yes, no := true, false
	with := func(c outboxfx.Config) outboxfx.Option { return outboxfx.WithConfig(c) }
	for _, tc := range []struct {
		name string
		opts []outboxfx.Option
		want string
	}{
		{"a store that is none", []outboxfx.Option{outboxfx.WithStore("postgres")}, "WithStore of the outbox is given a string; it wants a constructor"},
		{"a nil store", []outboxfx.Option{outboxfx.WithStore((*sqlstore.Store)(nil))}, "WithStore of the outbox is given a nil *sqlstore.Store"},
		{"a constructor of a nil store", []outboxfx.Option{outboxfx.WithStore(func() outbox.Store { return nil })}, "the constructor given to WithStore of the outbox"},
		{"a constructor that fails", []outboxfx.Option{outboxfx.WithStore(func() (outbox.Store, error) { return nil, errSMTP })}, "smtp down"},
		{"a constructor that cannot be called", []outboxfx.Option{outboxfx.WithStore(func(*absent) outbox.Store { return nil })}, "missing type: *outboxfx_test.absent"},
		{"nil metrics", []outboxfx.Option{outboxfx.WithMetrics(func() *counts { return nil })}, "the constructor given to WithMetrics of the outbox"},
		{"a nil logger", []outboxfx.Option{outboxfx.WithLogger((*slog.Logger)(nil))}, "WithLogger of the outbox is given a nil *slog.Logger"},
		{"a nil interceptor", []outboxfx.Option{outboxfx.WithInterceptors(nil)}, "interceptor 1 that WithInterceptors of the outbox is given is nil"},
		{"a config that is none", []outboxfx.Option{outboxfx.WithConfig(func() error { return nil })}, "WithConfig of the outbox is given"},
		{"a config that cannot be made", []outboxfx.Option{outboxfx.WithConfig(needyConfig)}, "missing type: *outboxfx_test.absent"},
		{"a bad config", []outboxfx.Option{with(outboxfx.Config{Mode: "x"})}, "the configuration of the outbox: mode is"},
		{"a table for a store", []outboxfx.Option{outboxfx.WithStore(sqlstore.SQLite()), with(outboxfx.Config{TableName: "t"})}, "table-name is set, but WithStore's store names its table itself"},
		{"a schema that the store cannot create", []outboxfx.Option{outboxfx.WithStore(bareStore{outboxtest.NewStore()}), with(outboxfx.Config{CreateSchema: true})}, "create-schema is true, but WithStore's outboxfx_test.bareStore has no CreateSchema"},
		{"two retry policies", []outboxfx.Option{outboxfx.WithRetryPolicy(outbox.ExponentialBackoff(1, 1)), with(outboxfx.Config{Retry: outboxfx.RetryConfig{MaxDelay: 1}})}, "retry is set, but WithRetryPolicy replaces it"},
		{"metrics without any", []outboxfx.Option{with(outboxfx.Config{Metrics: outboxfx.MetricsConfig{Enabled: &yes}})}, "metrics.enabled is true, but the module is given no metrics; add WithMetrics"},
		{"metrics off without any", []outboxfx.Option{with(outboxfx.Config{Metrics: outboxfx.MetricsConfig{Enabled: &no}})}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			err := newError(fx.Supply(openSQLite(t)), outboxfx.NewModule(tc.opts...))
			if tc.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.want)
		})
	}
}

// bareStore is a store with nothing but the interface's methods.
type bareStore struct{ outbox.Store }

func failedInboxOther() *inbox { return newInbox() }

func noInterceptor() outbox.Interceptor {
	return outbox.Before(func(context.Context, outbox.Envelope) error { return nil })
}

func noHook() outbox.WriterHook { return outbox.WriterHook{} }

func countedBinding() outbox.Binding { return outbox.On("", "Counted", newInbox()) }
