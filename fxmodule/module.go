package outboxfx

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"go.uber.org/fx"

	outboxotel "github.com/outboxkit/outbox-go/adapters/otel"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// Module is the unnamed outbox with nothing replaced: NewModule().
var Module = NewModule()

// DetectTimeout is how long the module waits for the database to say what it is.
const DetectTimeout = 10 * time.Second

// module is what the options say.
type module struct {
	name  string
	named bool

	config, store, metrics, retry, logger, registry *part

	interceptors []outbox.Interceptor
	hooks        []outbox.WriterHook
	tracing      []outboxotel.Option // not nil with WithOTel

	errs []error // of options that do not go together
}

// moduleName is in a value group, so that what is for an unknown outbox is
// noticed.
type moduleName string

// OneModulePerName is provided by each module, first, so that two modules of one
// name collide in it.
type OneModulePerName struct{}

func oneModulePerName() OneModulePerName { return OneModulePerName{} }

// resolved is a Config that was validated.
type resolved struct{ Config }

// parts are what the outbox was made of, as far as starting it needs them.
type parts struct {
	db      *sql.DB
	store   outbox.Store
	config  resolved
	metrics outbox.Metrics // nil for none
}

// NewModule makes an outbox part of an app: it needs a *sql.DB, takes a [Config]
// if there is one, provides *outbox.Outbox, *outbox.Writer and
// *outbox.DeadLetters, starts with the app and drains when the app stops. All of
// these carry the name that [Named] gives.
func NewModule(opts ...Option) fx.Option {
	var m module
	for _, opt := range opts {
		if opt != nil {
			opt(&m)
		}
	}
	if err := m.check(); err != nil {
		return fx.Error(err)
	}
	title, own := "outbox", nameTag(m.name)
	if m.name != "" {
		title += "." + m.name
	}
	part := func(what string) string { return partTag(m.name, what) }
	return fx.Module(
		title,
		fx.Provide(fx.Annotated{Name: m.name, Target: oneModulePerName}),
		fx.Supply(fx.Annotate(moduleName(m.name), fx.ResultTags(group))),
		m.provideConfig(),
		fx.Provide(fx.Annotate(func(c resolved) MetricsPrefix { return MetricsPrefix(c.metricsPrefix(m.name)) },
			fx.ParamTags(part("config")), fx.ResultTags(own))),
		providePart[outbox.Store](m.name, "store", m.store, m.detectStore),
		providePart[outbox.Metrics](m.name, "metrics", m.metrics, m.metricsOfConfig),
		providePart[outbox.RetryPolicy](m.name, "retry policy", m.retry, func() outbox.RetryPolicy { return nil }),
		providePart[*slog.Logger](m.name, "logger", m.logger, slog.Default),
		providePart[outbox.ListenerRegistry](m.name, "registry", m.registry, func() outbox.ListenerRegistry { return nil }),
		fx.Provide(fx.Annotate(m.build,
			fx.ParamTags(own, part("config"), part("store"), part("metrics"), part("retry policy"), part("logger"), part("registry"), group, group),
			fx.ResultTags(own, own, own, part("parts")))),
		fx.Provide(fx.Annotate(m.useOf, fx.ParamTags(own, part("parts")), fx.ResultTags(group))),
		fx.Invoke(fx.Annotate(m.run, fx.ParamTags("", own, part("parts"), `optional:"true"`, group, group, group, group, group))),
	)
}

func (m *module) check() error {
	errs := slices.Clone(m.errs)
	if m.named && m.name == "" {
		errs = append(errs, errors.New("outboxfx: Named is given no name; leave it out for the unnamed outbox"))
	}
	errs = append(errs, checkName(m.name))
	for i, interceptor := range m.interceptors {
		if interceptor == nil {
			errs = append(errs, fmt.Errorf("outboxfx: interceptor %d that WithInterceptors of %s is given is nil", i+1, describe(m.name)))
		}
	}
	return errors.Join(errs...)
}

// provideConfig provides the validated Config. The one that the app may have is
// the only thing that is optional.
func (m *module) provideConfig() fx.Option {
	validated := fx.ResultTags(partTag(m.name, "config"))
	if m.config != nil {
		return fx.Options(
			providePart[Config](m.name, "configuration", m.config, nil),
			fx.Provide(fx.Annotate(m.validate, fx.ParamTags(partTag(m.name, "configuration")), validated)),
		)
	}
	return fx.Provide(fx.Annotate(func(c Config, graph fx.DotGraph) (resolved, error) {
		if c == (Config{}) {
			if problem := ignoredConfig(graph, m.name); problem != "" {
				return resolved{}, fmt.Errorf("outboxfx: the Config of %s %s", describe(m.name), problem)
			}
		}
		return m.validate(c)
	}, fx.ParamTags(strings.TrimSpace(nameTag(m.name)+` optional:"true"`)), validated))
}

func (m *module) validate(c Config) (resolved, error) {
	if err := c.Validate(); err != nil {
		return resolved{}, fmt.Errorf("outboxfx: the configuration of %s: %w", describe(m.name), err)
	}
	return resolved{c}, nil
}

// detectStore asks the database what it is.
func (m *module) detectStore(db *sql.DB, c resolved) (outbox.Store, error) {
	ctx, cancel := context.WithTimeout(context.Background(), DetectTimeout)
	defer cancel()
	store, err := sqlstore.Detect(ctx, db, c.storeOptions()...)
	if err != nil {
		return nil, fmt.Errorf("outboxfx: choosing the store of %s, which WithStore would do without asking: %w", describe(m.name), err)
	}
	return store, nil
}

// build makes the outbox without its listeners: they may depend on services that
// depend on the writer.
func (m *module) build(
	db *sql.DB, c resolved, store outbox.Store, metrics outbox.Metrics, retry outbox.RetryPolicy,
	logger *slog.Logger, registry outbox.ListenerRegistry,
	interceptors []contribution[outbox.Interceptor], hooks []contribution[outbox.WriterHook],
) (*outbox.Outbox, *outbox.Writer, *outbox.DeadLetters, parts, error) {
	if err := m.conflicts(c, store); err != nil {
		return nil, nil, nil, parts{}, err
	}
	if m.name != "" {
		logger = logger.With("outbox", m.name)
	}
	cfg := c.OutboxConfig()
	cfg.DB, cfg.Store, cfg.Logger = db, store, logger
	if m.registry != nil {
		cfg.Registry = registry
	}
	if c.metricsEnabled() {
		cfg.Metrics = metrics
	} else if closer, can := metrics.(io.Closer); can { // as the outbox would have done
		if err := closer.Close(); err != nil {
			return nil, nil, nil, parts{}, fmt.Errorf("outboxfx: closing the metrics of %s, which are switched off: %w", describe(m.name), err)
		}
	}
	if m.retry != nil {
		cfg.RetryPolicy = retry
	}
	cfg.Interceptors = append(slices.Clone(m.interceptors), values(inOrder(interceptors, m.name))...)
	cfg.Hooks = append(slices.Clone(m.hooks), values(inOrder(hooks, m.name))...)
	m.trace(&cfg, c)
	o, err := outbox.New(cfg)
	if err != nil {
		if closer, can := cfg.Metrics.(io.Closer); can { // there will be no outbox that would
			err = errors.Join(err, closer.Close())
		}
		return nil, nil, nil, parts{}, fmt.Errorf("outboxfx: making %s: %w", describe(m.name), err)
	}
	return o, o.Writer(), o.DeadLetters(), parts{db, store, c, cfg.Metrics}, nil
}

// conflicts reports settings that an option leaves without effect.
func (m *module) conflicts(c resolved, store outbox.Store) error {
	var errs []error
	conflict := func(key, problem string) { errs = append(errs, m.conflict(key, problem)) }
	if m.store != nil && c.TableName != "" {
		conflict("table-name", "is set, but WithStore's store names its table itself, as with sqlstore.WithTable")
	}
	if _, can := store.(schemaCreator); c.CreateSchema && !can {
		conflict("create-schema", fmt.Sprintf("is true, but WithStore's %T has no CreateSchema(ctx, db) error", store))
	}
	if m.retry != nil && c.Retry != (RetryConfig{}) {
		conflict("retry", "is set, but WithRetryPolicy replaces it")
	}
	return errors.Join(errs...)
}

func (m *module) conflict(key, problem string) error {
	return fmt.Errorf("outboxfx: the configuration of %s: %w", describe(m.name), &KeyError{Key: key, Problem: problem})
}
