package outboxfx

import "github.com/outboxkit/outbox-go/outbox"

// Option changes the module's outbox; see [NewModule]. Where an option takes
// "a value or a constructor", the constructor is func(dependencies…) T or
// (T, error), and its parameters of the types *sql.DB and [MetricsPrefix] are
// this outbox's own, also when it is a named one. What an option replaces is
// replaced for certain: a constructor that cannot be called is an error of the
// app.
type Option func(*module)

// MetricsPrefix is what tells the names of an outbox's metrics from others': the
// setting metrics.name-prefix, by default "outbox", or "orders.outbox" for an
// outbox named "orders". A constructor given to [WithMetrics] asks for it.
// [WithPrometheus] and [WithOTelMetrics] leave the prefix of a named outbox as it
// is and give its figures a label.
type MetricsPrefix string

// Named makes the outbox one of several. It needs a *sql.DB of that name and
// provides *outbox.Outbox, *outbox.Writer and *outbox.DeadLetters under it; its
// [Config] comes from [WithConfig], or from a Config of that name. A name is a
// letter, then letters, digits, hyphens and underscores.
func Named(name string) Option {
	return func(m *module) { m.name, m.named = name, true }
}

// WithConfig is the outbox's configuration: a [Config], or a constructor of one,
// such as one that calls [LoadConfig]. Without it the outbox takes a Config of
// its name from the app, if there is one.
func WithConfig(config any) Option { return func(m *module) { m.config = &part{"WithConfig", config} } }

// WithStore replaces the store: an [outbox.Store], or a constructor of one.
// Defaults to asking the database what it is when the app is made.
func WithStore(store any) Option { return func(m *module) { m.store = &part{"WithStore", store} } }

// WithMetrics is where figures go: an [outbox.Metrics], or a constructor of one,
// which may ask for the [MetricsPrefix]. They are used until the outbox
// closes, which closes an [io.Closer] too; when metrics.enabled is false it is
// closed at once and not used.
func WithMetrics(metrics any) Option {
	return func(m *module) { m.measure("WithMetrics", metrics) }
}

// WithRetryPolicy replaces the backoff that the settings retry.* describe, which
// then cannot be set: an [outbox.RetryPolicy], or a constructor of one.
func WithRetryPolicy(policy any) Option {
	return func(m *module) { m.retry = &part{"WithRetryPolicy", policy} }
}

// WithLogger replaces slog.Default(): a *slog.Logger, or a constructor of one.
func WithLogger(logger any) Option { return func(m *module) { m.logger = &part{"WithLogger", logger} } }

// WithRegistry replaces the registry of listeners: an [outbox.ListenerRegistry],
// or a constructor of one. An *outbox.Registry keeps what it holds and gets the
// app's listeners as well; any other kind is asked as it is, and [AsListener]
// and [AsBinding] for this outbox are then errors. Since the outbox is made of
// it, listeners in it cannot depend on the outbox's writer.
func WithRegistry(registry any) Option {
	return func(m *module) { m.registry = &part{"WithRegistry", registry} }
}

// WithInterceptors puts interceptors around every delivery, in the order given,
// outside of those from [AsInterceptor].
func WithInterceptors(interceptors ...outbox.Interceptor) Option {
	return func(m *module) { m.interceptors = append(m.interceptors, interceptors...) }
}

// WithHooks lets hooks take part in every write, in the order given, before
// those from [AsHook].
func WithHooks(hooks ...outbox.WriterHook) Option {
	return func(m *module) { m.hooks = append(m.hooks, hooks...) }
}
