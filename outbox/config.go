package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/outboxkit/outbox-go/internal/nilness"
	"github.com/outboxkit/outbox-go/outbox/internal/hold"
	"github.com/outboxkit/outbox-go/outbox/internal/leases"
	"github.com/outboxkit/outbox-go/outbox/internal/notify"
)

// Config configures an [Outbox]. DB and Store are required; the zero value of every
// other field means its default.
type Config struct {
	// DB is the connection pool: a *sql.DB, or a type that embeds one.
	DB DB
	// Store is the store for the kind of database, from package sqlstore.
	Store Store
	// Mode says how to deliver. Defaults to [SingleNode].
	Mode Mode
	// Purge deletes old rows; in [WriterOnly] whatever their status. Defaults to
	// no purging.
	Purge *PurgeOptions
	// Registry finds listeners. Defaults to a [Registry] that Register fills.
	Registry ListenerRegistry
	// Interceptors run around every delivery, in the order given.
	Interceptors []Interceptor
	// Hooks take part in every write, in the order given.
	Hooks []WriterHook
	// Metrics defaults to none. An [io.Closer] is closed with the outbox.
	Metrics Metrics
	// Logger defaults to slog.Default().
	Logger *slog.Logger
	// RetryPolicy defaults to ExponentialBackoff(200 ms, 1 min).
	RetryPolicy RetryPolicy
	// Clock defaults to the system's.
	Clock Clock
	// Notifier wakes the pollers of other processes for events that this one does
	// not deliver itself, and when it closes. Nil: they find such events when they
	// poll, at the latest after [PollOptions].Interval.
	Notifier Notifier
}

// New makes an outbox from a copy of the config. It reports all invalid fields
// together, each as a [FieldError]. Nothing runs before Start.
func New(cfg Config) (*Outbox, error) {
	b := builder{Config: cfg}
	if err := b.validate(); err != nil {
		return nil, err
	}
	return b.build()
}

// builder derives the options of each part from the mode.
type builder struct {
	Config
	dispatch *DispatchOptions // nil: no dispatcher
	poll     *PollOptions     // nil: no poller
	claim    *ClaimOptions    // nil: no leases
	byKey    *OrderedByKey
	hot      bool
	inOrder  bool
}

func (b *builder) validate() error {
	v := validator{what: "Config"}
	requireStore(&v, b.DB, b.Store)
	switch m := b.Mode.(type) {
	case nil:
		b.dispatch, b.poll, b.hot = &DispatchOptions{}, &PollOptions{}, true
	case SingleNode:
		b.dispatch, b.poll, b.hot = &m.Dispatch, &m.Poll, true
	case MultiNode:
		b.dispatch, b.poll, b.hot = &m.Dispatch, &m.Poll, true
		claim := m.Claim
		b.claim = &claim
		requireTenantReader(&v, claim.TenantsInTurn, b.Store)
	case OrderedByKey:
		b.hot = true // by way of the poller
		m.options(b, &v)
	case Ordered:
		b.dispatch, b.poll, b.inOrder = &DispatchOptions{
			Workers: 1, MaxAttempts: 1,
			DrainTimeout: m.DrainTimeout, ListenerTimeout: m.ListenerTimeout, OnUnroutable: m.OnUnroutable,
		}, &m.Poll, true
	case WriterOnly:
	default:
		v.add("Mode", fmt.Sprintf("is a %T; it must be one of the five modes, by value", m))
	}
	b.validateOptions(&v)
	for i, interceptor := range b.Interceptors {
		if interceptor == nil {
			v.add(fmt.Sprintf("Interceptors[%d]", i), "is nil")
		}
	}
	for name, part := range map[string]any{"Registry": b.Registry, "Metrics": b.Metrics, "RetryPolicy": b.RetryPolicy, "Clock": b.Clock, "Notifier": b.Notifier} {
		if part != nil && nilness.IsNil(part) {
			v.add(name, fmt.Sprintf("is a nil %T; leave it out for the default", part))
		}
	}
	b.validateNotifier(&v)
	return v.err()
}

// validateNotifier reports a notifier for another kind of database.
func (b *builder) validateNotifier(v *validator) {
	if nilness.IsNil(b.Notifier) || nilness.IsNil(b.Store) {
		return
	}
	notifier, names := b.Notifier.(interface{ Dialect() string })
	store, named := b.Store.(interface{ Dialect() string })
	if names && named && notifier.Dialect() != store.Dialect() {
		v.add("Notifier", fmt.Sprintf("is a %T, which is for %s; the store is for %s", b.Notifier, notifier.Dialect(), store.Dialect()))
	}
}

func (b *builder) validateOptions(v *validator) {
	nested := func(name string, validate func(*validator)) {
		sub := validator{what: "Config." + name}
		validate(&sub)
		v.errs = append(v.errs, sub.errs...)
	}
	if b.dispatch != nil {
		nested("Mode.Dispatch", b.dispatch.validate)
	}
	if b.poll != nil {
		nested("Mode.Poll", b.poll.validate)
	}
	if b.claim != nil {
		nested("Mode.Claim", b.claim.validate)
	}
	if b.Purge != nil {
		nested("Purge", b.Purge.validate)
	}
}

func (b *builder) build() (*Outbox, error) {
	o := &Outbox{
		db: b.DB, mode: b.Mode,
		metrics: metricsOr(b.Metrics), clock: clockOr(b.Clock), closed: make(chan struct{}),
	}
	o.ending, o.end = context.WithCancel(context.Background())
	log := loggerOr(b.Logger)
	if b.Registry == nil {
		b.Registry = NewRegistry()
	}
	o.registry, _ = b.Registry.(*Registry)
	b.Store = bound(b.Store, b.DB)
	o.store = b.Store
	if b.claim != nil {
		claim := b.claim.withDefaults() // one owner for dispatcher and poller
		b.claim = &claim
	}
	o.log, o.claim, o.purge = log, b.claim, b.Purge
	if err := errors.Join(b.buildEngine(o), b.buildWriter(o)); err != nil {
		return nil, err
	}
	if o.dispatcher != nil && b.claim == nil {
		owner := o.dispatcher.leases.names.Owner
		o.hold = hold.New(owner, heldTable{b.DB, b.Store, owner, o.poller}, log)
		o.dispatcher.hold, o.poller.inOrder = o.hold, b.inOrder
	}
	o.announcer = newAnnouncer(b.DB, b.Store, log, o.clock, o.node, nil)
	if o.dispatcher != nil {
		o.announcer.polled = o.poller.polled
	} else {
		o.writerName = leases.NewOwner()
	}
	if b.Notifier != nil {
		b.connect(o, newNotifications(channel{b.Notifier, b.DB, b.Store}, o.poller, log))
	}
	o.dead = &DeadLetters{db: b.DB, store: b.Store, clock: o.clock, wake: o.Wake}
	b.connectKeys(o)
	return o, nil
}

// connect gives the notifications to the parts that ask for them.
func (b *builder) connect(o *Outbox, n *notify.Notifications) {
	o.notifications, o.writer.notifications = n, n
	if o.dispatcher != nil {
		o.dispatcher.notifications = n
	}
}

func (b *builder) buildEngine(o *Outbox) (err error) {
	if b.dispatch != nil {
		cfg := DispatcherConfig{
			DB: b.DB, Store: b.Store, Registry: b.Registry, Options: *b.dispatch, Claim: b.claim,
			Interceptors: b.Interceptors, RetryPolicy: b.RetryPolicy,
			Metrics: b.Metrics, Logger: b.Logger, Clock: b.Clock,
			byKey: b.byKey != nil, inOrder: b.inOrder,
		}
		if b.Purge != nil {
			cfg.OnDone = b.Purge.OnDone
		}
		if o.dispatcher, err = NewDispatcher(cfg); err != nil {
			return err
		}
	}
	if b.poll != nil {
		o.poller, err = NewPoller(PollerConfig{
			DB: b.DB, Store: b.Store, Handler: o.dispatcher, Options: *b.poll,
			Metrics: b.Metrics, Logger: b.Logger, Clock: b.Clock,
		})
		if err != nil {
			return err
		}
	}
	if b.Purge != nil {
		o.purger, err = NewPurger(PurgerConfig{
			DB: b.DB, Store: b.Store, Options: *b.Purge, ByAge: b.dispatch == nil, Logger: b.Logger, Clock: b.Clock,
		})
	}
	return err
}

func (b *builder) buildWriter(o *Outbox) (err error) {
	cfg := WriterConfig{
		Store: b.Store, Source: b.DB, Hooks: b.Hooks, Poller: o.poller,
		Metrics: b.Metrics, Logger: b.Logger, Clock: b.Clock,
	}
	if b.hot {
		cfg.Dispatcher = o.dispatcher
	}
	o.writer, err = NewWriter(cfg)
	return err
}

// Clock tells the time. Give one only in tests; timers run on the system's.
type Clock interface {
	Now() time.Time
}

// ClockFunc makes a function a [Clock].
type ClockFunc func() time.Time

// Now calls f.
func (f ClockFunc) Now() time.Time { return f() }

func clockOr(c Clock) Clock {
	if c == nil {
		return ClockFunc(time.Now)
	}
	return c
}
