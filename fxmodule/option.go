package outboxfx

import (
	"fmt"

	"github.com/outboxkit/outbox-go/outbox"
)

// Option changes the module's outbox; see [NewModule]. Where an option takes a
// value or a constructor, it may be given once; the constructor is
// func(dependencies…) T or (T, error). Its parameters of the types *sql.DB,
// [Config], [Name] and [MetricsPrefix] belong to this outbox, whatever its name.
type Option func(*module)

// MetricsPrefix is the first part of the names of an outbox's metrics: the setting
// metrics.name-prefix, by default "outbox", or "orders.outbox" for an outbox named
// "orders". A constructor given to [WithMetrics] can ask for it.
type MetricsPrefix string

// Named makes the outbox one of several. It needs a *sql.DB of that name, and
// everything that it provides has that name, its [Config] too. A name is a letter,
// then letters, digits, hyphens and underscores, at most 64 characters.
func Named(name string) Option {
	return func(m *module) {
		if m.name = name; !validName.MatchString(name) {
			m.problem(fmt.Sprintf("%.80q cannot be the name of an outbox: use a letter, then letters, digits, hyphens and underscores, at most 64 characters", name))
		}
	}
}

// WithConfig replaces the default configuration, Config{}: a [Config], or a
// constructor of one. fx.Replace and fx.Decorate change it as well.
func WithConfig(config any) Option {
	return set("WithConfig", config, func(m *module) **given { return &m.config })
}

// WithStore replaces the store: an [outbox.Store], or a constructor of one. By
// default the module asks the database what it is when the app is built.
func WithStore(store any) Option {
	return set("WithStore", store, func(m *module) **given { return &m.store })
}

// WithMetrics sets the receiver of the metrics: an [outbox.Metrics], or a constructor
// of one. If it has the method WatchTable, as those of outboxprom and outboxotel have,
// the module calls that when the outbox starts. If it is an [io.Closer], the outbox
// closes it last. If metrics.enabled is false, it is closed at once and unused.
func WithMetrics(metrics any) Option {
	return set("WithMetrics", metrics, func(m *module) **given { return &m.metrics })
}

// WithRetryPolicy replaces the backoff of the settings retry.*, which then cannot
// be set: an [outbox.RetryPolicy], or a constructor of one.
func WithRetryPolicy(policy any) Option {
	return set("WithRetryPolicy", policy, func(m *module) **given { return &m.retry })
}

// WithLogger replaces the app's *slog.Logger, and slog.Default() in an app that provides
// none: a *slog.Logger, or a constructor of one.
func WithLogger(logger any) Option {
	return set("WithLogger", logger, func(m *module) **given { return &m.logger })
}

// WithRegistry replaces the registry of listeners: an [outbox.ListenerRegistry],
// or a constructor of one. An *outbox.Registry keeps what it holds and gets the
// app's listeners as well. With any other type, [AsListener] and [AsBinding] for
// this outbox are errors. The outbox is built with its registry, so listeners in it
// cannot depend on the outbox's writer.
func WithRegistry(registry any) Option {
	return set("WithRegistry", registry, func(m *module) **given { return &m.registry })
}

// WithNotifier wakes the pollers of other processes: an [outbox.Notifier], or a
// constructor of one, such as pgnotify.New, or sqlstore.MySQL() as a value. By default
// there is none.
func WithNotifier(notifier any) Option {
	return set("WithNotifier", notifier, func(m *module) **given { return &m.notifier })
}

// WithInterceptors puts interceptors around every delivery, in the order given,
// outside those of [AsInterceptor].
func WithInterceptors(interceptors ...outbox.Interceptor) Option {
	return func(m *module) { m.interceptors = append(m.interceptors, interceptors...) }
}

// WithHooks makes hooks take part in every write, in the order given, before those
// of [AsHook].
func WithHooks(hooks ...outbox.WriterHook) Option {
	return func(m *module) { m.hooks = append(m.hooks, hooks...) }
}

// WithTracing adds a hook after all other hooks and an interceptor around all
// others, unless tracing.enabled is false. Package fxotel calls it.
func WithTracing(hook outbox.WriterHook, interceptor outbox.Interceptor) Option {
	return func(m *module) { m.last, m.outermost = append(m.last, hook), append(m.outermost, interceptor) }
}

func set(option string, value any, field func(*module) **given) Option {
	return func(m *module) {
		if f := field(m); *f == nil {
			*f = &given{option, value}
		} else {
			m.problem(option + " is given twice; leave one out")
		}
	}
}

func (m *module) problem(text string) {
	m.errs = append(m.errs, fmt.Errorf("outboxfx: NewModule: %s", text))
}
