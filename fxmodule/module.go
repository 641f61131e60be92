package outboxfx

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/fx"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// Module is NewModule(): the unnamed outbox with all defaults.
var Module = NewModule()

// module holds the values of the options.
type module struct {
	name string

	config, store, metrics, retry, logger, registry, notifier *given

	interceptors []outbox.Interceptor
	hooks        []outbox.WriterHook
	outermost    []outbox.Interceptor // around all others, for tracing
	last         []outbox.WriterHook  // after all others, for tracing

	errs []error // of options that contradict each other
}

// validConfig is a validated Config.
type validConfig struct{ Config }

// NewModule makes an outbox part of an app. The module needs a *sql.DB. It provides *outbox.Outbox,
// *outbox.Writer, *outbox.DeadLetters and a [Config] that the app may replace. The module starts
// the outbox with the app and drains it when the app stops. All of these types have the name that
// [Named] gives. If the app provides an *outbox.SharedWorkers, which has no name, all outboxes of
// the app share the workers. If the app provides a *slog.Logger without a name, all outboxes of the
// app log to it, otherwise to slog.Default().
//
// The module registers the listeners of [AsListener], [AsBinding] and [AsRelay], and each
// [outbox.Binding] in the value group "outbox"; for an outbox with a name, the group is
// "outbox.name".
func NewModule(opts ...Option) fx.Option {
	var m module
	for _, opt := range opts {
		opt(&m)
	}
	if err := errors.Join(m.errs...); err != nil {
		return fx.Error(err)
	}
	own := nameTag(m.name)
	part := func(what string) string { return partTag(m.name, what) }
	return fx.Module(
		moduleName(m.name),
		// First, so that two modules with the same name collide here.
		fx.Provide(fx.Annotated{Name: m.name, Target: m.twoModulesHaveOneNameUseNamed}),
		fx.Supply(fx.Annotate(Name(m.name), fx.ResultTags(group))),
		m.provideConfig(),
		fx.Provide(located((*module).validate, m.validate, fx.ParamTags(own), fx.ResultTags(part("configuration")))),
		fx.Provide(located((*module).metricsPrefix, m.metricsPrefix, fx.ParamTags(part("configuration")), fx.ResultTags(own))),
		providePart[outbox.Store](&m, part("store"), m.store, m.detectStore),
		providePart[outbox.Metrics](&m, part("metrics"), m.metrics, func() outbox.Metrics { return nil }),
		providePart[outbox.RetryPolicy](&m, part("retry policy"), m.retry, func() outbox.RetryPolicy { return nil }),
		providePart[*slog.Logger](&m, part("logger"), m.logger, loggerOf),
		providePart[outbox.ListenerRegistry](&m, part("registry"), m.registry, func() outbox.ListenerRegistry { return nil }),
		providePart[outbox.Notifier](&m, part("notifier"), m.notifier, func() outbox.Notifier { return nil }),
		fx.Provide(located((*module).build, m.build,
			fx.ParamTags(part("configuration"), own, part("store"), part("metrics"), part("retry policy"), part("logger"), part("registry"), part("notifier"), `optional:"true"`, group, group),
			fx.ResultTags(own, own, own, group))),
		fx.Provide(fx.Annotate(m.ofGroup, fx.ParamTags(groupTag(m.name)), fx.ResultTags(group))),
		fx.Invoke(run),
	)
}

// twoModulesHaveOneNameUseNamed provides the name. fx shows this function's name when another
// module has the same outbox name.
func (m *module) twoModulesHaveOneNameUseNamed() Name { return Name(m.name) }

func (m *module) provideConfig() fx.Option {
	if m.config != nil {
		return providePart[Config](m, nameTag(m.name), m.config, nil)
	}
	return fx.Provide(fx.Annotated{Name: m.name, Target: defaultConfigUseReplace})
}

func (m *module) validate(c Config) (validConfig, error) {
	if err := c.Validate(); err != nil {
		return validConfig{}, fmt.Errorf("outboxfx: the configuration of %s: %w", describe(m.name), err)
	}
	c.Mode = c.Mode.canonical()
	return validConfig{c}, nil
}

func (m *module) metricsPrefix(c validConfig) MetricsPrefix {
	return MetricsPrefix(cmp.Or(c.Metrics.NamePrefix, strings.TrimPrefix(m.name+".outbox", ".")))
}

// fromApp holds the values that the app may provide, without a name.
type fromApp struct {
	fx.In
	Logger *slog.Logger `optional:"true"`
}

func loggerOf(app fromApp) *slog.Logger { return cmp.Or(app.Logger, slog.Default()) }

// storeOptions returns the options of the store that name the table.
func (c Config) storeOptions() []sqlstore.Option {
	if c.Table == "" {
		return nil
	}
	return []sqlstore.Option{sqlstore.WithTable(c.Table)}
}

// detectStore detects the kind of the database, for 10 s at most.
func (m *module) detectStore(c validConfig, db *sql.DB) (outbox.Store, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	opts := c.storeOptions()
	if c.Mode == WriterOnly && c.purges() {
		opts = append(opts, sqlstore.WithAgeIndex())
	}
	if c.Mode == OrderedByKey {
		opts = append(opts, sqlstore.WithKeyIndex())
	}
	if c.Claim.TenantsInTurn {
		opts = append(opts, sqlstore.WithTenantIndex())
	}
	if c.UniqueKeys {
		opts = append(opts, sqlstore.WithUniqueIndex())
	}
	store, err := sqlstore.Detect(ctx, db, opts...)
	if err != nil {
		return nil, fmt.Errorf("outboxfx: detecting the database of %s, which WithStore makes unnecessary: %w", describe(m.name), err)
	}
	return store, nil
}

// built is an outbox and the values that its start needs.
type built struct {
	name    string
	outbox  *outbox.Outbox
	config  Config
	db      *sql.DB
	store   outbox.Store
	metrics outbox.Metrics // nil: no metrics
	first   *sync.Once     // the Once of the app's first outbox runs all outboxes
}

// build makes the outbox without its listeners: they may depend on services that
// depend on the writer.
func (m *module) build(
	c validConfig, db *sql.DB, store outbox.Store, metrics outbox.Metrics, retry outbox.RetryPolicy,
	logger *slog.Logger, registry outbox.ListenerRegistry, notifier outbox.Notifier, shared *outbox.SharedWorkers,
	interceptors []contribution[outbox.Interceptor], hooks []contribution[outbox.WriterHook],
) (*outbox.Outbox, *outbox.Writer, *outbox.DeadLetters, built, error) {
	cfg := c.outboxConfig(shared)
	cfg.DB, cfg.Store, cfg.Logger, cfg.Registry, cfg.Notifier = db, store, logger, registry, notifier
	if m.name != "" {
		cfg.Logger = logger.With("outbox", m.name)
	}
	if retry != nil {
		cfg.RetryPolicy = retry
	}
	if enabled(c.Metrics.Enabled) {
		cfg.Metrics = metrics
	}
	cfg.Interceptors = values(m.interceptors, interceptors, m.name)
	cfg.Hooks = values(m.hooks, hooks, m.name)
	if enabled(c.Tracing.Enabled) {
		cfg.Interceptors = slices.Concat(m.outermost, cfg.Interceptors)
		cfg.Hooks = slices.Concat(cfg.Hooks, m.last)
	}
	var o *outbox.Outbox
	err := m.conflicts(c, store)
	if err == nil {
		if o, err = outbox.New(cfg); err != nil {
			err = fmt.Errorf("outboxfx: building %s: %w", describe(m.name), err)
		}
	}
	if closer, can := metrics.(io.Closer); can && (err != nil || cfg.Metrics == nil) { // no outbox will close the metrics
		err = errors.Join(err, closer.Close())
	}
	if err != nil {
		return nil, nil, nil, built{}, err
	}
	return o, o.Writer(), o.DeadLetters(), built{m.name, o, c.Config, db, store, cfg.Metrics, &sync.Once{}}, nil
}

func enabled(setting *bool) bool { return setting == nil || *setting }

// conflicts reports settings that the options make ineffective.
func (m *module) conflicts(c validConfig, store outbox.Store) error {
	on := func(setting *bool) bool { return setting != nil && *setting }
	_, creates := store.(schemaCreator)
	var errs []error
	for _, conflict := range []struct {
		is             bool
		field, problem string
	}{
		{m.store != nil && c.Table != "", "Table", "is set, but WithStore's store names its table itself, as with sqlstore.WithTable"},
		{c.CreateSchema && !creates, "CreateSchema", fmt.Sprintf("is true, but WithStore's %T has no CreateSchema(ctx, db) error", store)},
		{m.store != nil && c.UniqueKeys, "UniqueKeys", "is true, but WithStore's store has its options itself, as with sqlstore.WithUniqueIndex"},
		{m.retry != nil && c.Retry != (RetryConfig{}), "Retry", "is set, but WithRetryPolicy replaces it"},
		{m.metrics == nil && on(c.Metrics.Enabled), "Metrics.Enabled", "is true, but the module has no metrics; give NewModule fxprom.Metrics, fxotel.Metrics or outboxfx.WithMetrics"},
		{m.last == nil && on(c.Tracing.Enabled), "Tracing.Enabled", "is true, but the module has no tracing; give NewModule fxotel.Tracing or outboxfx.WithTracing"},
	} {
		if conflict.is {
			errs = append(errs, fmt.Errorf("outboxfx: the configuration of %s: %w", describe(m.name), keyError(conflict.field, conflict.problem)))
		}
	}
	return errors.Join(errs...)
}
