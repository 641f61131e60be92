package outboxfx

import (
	"fmt"

	"github.com/outboxkit/outbox-go/outbox"
)

// Option changes the module's outbox; see [NewModule]. An option that takes a value or a
// constructor may be given once; the constructor is func(dependencies…) T or (T, error). Parameters
// of the types *sql.DB, [Config], [Name] and [MetricsPrefix] belong to this outbox, whatever the
// outbox's name.
type Option func(*module)

// MetricsPrefix is the first part of the names of an outbox's metrics: the setting
// metrics.name-prefix, by default "outbox", or "orders.outbox" for an outbox named "orders". A
// constructor given to [WithMetrics] can ask for the prefix.
type MetricsPrefix string

// Named makes the outbox one of several. The outbox needs a *sql.DB with the same name, and
// everything that the outbox provides has this name, including its [Config]. A name is a letter,
// then letters, digits, hyphens and underscores, at most 64 characters.
func Named(name string) Option {
	return func(m *module) {
		if m.name = name; !validName.MatchString(name) {
			m.problem(fmt.Sprintf("%.80q cannot be the name of an outbox: use a letter, then letters, digits, hyphens and underscores, at most 64 characters", name))
		}
	}
}

// WithConfig replaces the default configuration, Config{}: give a [Config], or a constructor of a
// Config. fx.Replace and fx.Decorate change it as well.
func WithConfig(config any) Option {
	return set("WithConfig", config, func(m *module) **given { return &m.config })
}

// WithStore replaces the store: give an [outbox.Store], or a constructor of a store. By default the
// module detects the kind of the database when the app is built.
func WithStore(store any) Option {
	return set("WithStore", store, func(m *module) **given { return &m.store })
}

// WithMetrics sets the receiver of the metrics: give an [outbox.Metrics], or a constructor of an
// outbox.Metrics. If the receiver has the method WatchTable, as the receivers of outboxprom and
// outboxotel have, the module calls the method when the outbox starts. If the receiver is an
// [io.Closer], the outbox closes it last. If metrics.enabled is false, the receiver is closed at
// once and not used.
func WithMetrics(metrics any) Option {
	return set("WithMetrics", metrics, func(m *module) **given { return &m.metrics })
}

// WithRetryPolicy replaces the backoff of the settings retry.*, which then cannot be set: give an
// [outbox.RetryPolicy], or a constructor of a policy.
func WithRetryPolicy(policy any) Option {
	return set("WithRetryPolicy", policy, func(m *module) **given { return &m.retry })
}

// WithLogger replaces the app's *slog.Logger, or slog.Default() in an app that provides no logger:
// give a *slog.Logger, or a constructor of a logger.
func WithLogger(logger any) Option {
	return set("WithLogger", logger, func(m *module) **given { return &m.logger })
}

// WithRegistry replaces the registry of listeners: give an [outbox.ListenerRegistry], or a
// constructor of a registry. An *outbox.Registry keeps its listeners and gets the app's listeners
// as well. With any other type, [AsListener] and [AsBinding] for this outbox are errors. The
// registry must exist before the outbox is built, so listeners in it cannot depend on the outbox's
// writer.
func WithRegistry(registry any) Option {
	return set("WithRegistry", registry, func(m *module) **given { return &m.registry })
}

// WithNotifier wakes the pollers of other processes: give an [outbox.Notifier], or a constructor of
// a notifier, such as pgnotify.New, or sqlstore.MySQL() as a value. By default there is no
// notifier.
func WithNotifier(notifier any) Option {
	return set("WithNotifier", notifier, func(m *module) **given { return &m.notifier })
}

// WithInterceptors puts interceptors around every delivery, in the order given, outside the
// interceptors of [AsInterceptor].
func WithInterceptors(interceptors ...outbox.Interceptor) Option {
	return func(m *module) { m.interceptors = append(m.interceptors, interceptors...) }
}

// WithHooks makes hooks take part in every write, in the order given, before the hooks of [AsHook].
func WithHooks(hooks ...outbox.WriterHook) Option {
	return func(m *module) { m.hooks = append(m.hooks, hooks...) }
}

// WithTracing adds a hook after all other hooks and an interceptor around all other interceptors,
// unless tracing.enabled is false. Package fxotel calls WithTracing.
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
