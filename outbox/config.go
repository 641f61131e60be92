package outbox

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/outboxkit/outbox-go/internal/nilness"
	"github.com/outboxkit/outbox-go/outbox/internal/agenda"
	"github.com/outboxkit/outbox-go/outbox/internal/hold"
	"github.com/outboxkit/outbox-go/outbox/internal/leases"
	"github.com/outboxkit/outbox-go/outbox/internal/logburst"
	"github.com/outboxkit/outbox-go/outbox/internal/loop"
)

// Config configures an [Outbox]. DB and Store are required; the zero value of every
// other field means its default.
type Config struct {
	// DB is the connection pool: a *sql.DB, or a type that embeds *sql.DB.
	DB DB
	// Store is the store for the kind of database, from package sqlstore.
	Store Store
	// Mode says how to deliver. Defaults to [SingleNode].
	Mode Mode
	// Purge deletes old rows that are DONE or DEAD, and with [PurgeOptions].Undelivered all old rows.
	// Defaults to no purging.
	Purge *PurgeOptions
	// Registry finds listeners. Defaults to a [Registry] that Register fills.
	Registry ListenerRegistry
	// Interceptors run around every delivery, in the order given.
	Interceptors []Interceptor
	// Hooks take part in every write, in the order given.
	Hooks []WriterHook
	// Metrics defaults to no metrics. An [io.Closer] is closed with the outbox.
	Metrics Metrics
	// Logger defaults to slog.Default().
	Logger *slog.Logger
	// RetryPolicy defaults to ExponentialBackoff(200 ms, 1 min).
	RetryPolicy RetryPolicy
	// Clock defaults to the system clock.
	Clock Clock
	// Notifier wakes the pollers of other processes for events that this process does
	// not deliver itself, and when the outbox closes. Nil: they find such events when
	// they poll, at the latest after [PollOptions].Interval.
	Notifier Notifier
	// Version is the version of the program, for the report of this process: a single line of at most
	// MaxVersionLength characters. Defaults to the version of the main module in the program's build
	// information, or to the revision of the version control; empty if the program has neither.
	Version string
}

// New makes an outbox from a copy of the config. New reports all invalid fields
// together, each as a [FieldError]. Nothing runs before Start.
func New(cfg Config) (*Outbox, error) {
	b := builder{Config: cfg}
	if err := b.validate(); err != nil {
		return nil, err
	}
	return b.build(), nil
}

// builder makes the parts of an outbox, and derives the options of each part from the mode.
type builder struct {
	Config
	drain    *drain           // nil: for an outbox that is started
	dispatch *DispatchOptions // nil: no dispatcher and no poller
	poll     *PollOptions
	claim    *ClaimOptions // nil: no leases
	byKey    *OrderedByKey
	inOrder  bool     // as in [Ordered]
	chain    Listener // the interceptors around the router
}

func (b *builder) validate() error {
	v := validator{what: "Config"}
	requireStore(&v, b.DB, b.Store)
	if !nilness.IsNil(b.DB) && !reflect.TypeOf(b.DB).Comparable() {
		v.add("DB", fmt.Sprintf("is a %T, which cannot be compared; give a pointer", b.DB))
	}
	switch m := b.Mode.(type) {
	case nil:
		b.dispatch, b.poll = &DispatchOptions{}, &PollOptions{}
	case SingleNode:
		b.dispatch, b.poll = &m.Dispatch, &m.Poll
	case MultiNode:
		b.dispatch, b.poll = &m.Dispatch, &m.Poll
		claim := m.Claim
		b.claim = &claim
		requireTenantReader(&v, claim.TenantsInTurn, b.Store)
	case OrderedByKey:
		m.options(b, &v)
	case Ordered:
		b.dispatch, b.poll, b.inOrder = &DispatchOptions{
			Workers: 1, MaxAttempts: 1, PollerOnly: true,
			DrainTimeout: m.DrainTimeout, ListenerTimeout: m.ListenerTimeout, OnUnroutable: defaultTo(m.OnUnroutable, KillUnroutable), Rules: m.Rules,
		}, &m.Poll, true
	case WriterOnly:
	default:
		v.add("Mode", fmt.Sprintf("is a %T; it must be one of the five modes, by value", m))
	}
	b.validateOptions(&v)
	for name, part := range map[string]any{"Registry": b.Registry, "Metrics": b.Metrics, "RetryPolicy": b.RetryPolicy, "Clock": b.Clock, "Notifier": b.Notifier} {
		if part != nil && nilness.IsNil(part) {
			v.add(name, fmt.Sprintf("is a nil %T; leave it out for the default", part))
		}
	}
	b.validateNotifier(&v)
	v.line("Version", b.Version, MaxVersionLength)
	if b.Registry == nil {
		b.Registry = NewRegistry()
	}
	b.chain = chain(&v, b.Interceptors, b.Registry)
	return v.err()
}

// options takes the mode's options apart and reports the invalid options.
func (m OrderedByKey) options(b *builder, v *validator) {
	b.dispatch, b.poll, b.claim, b.byKey = &m.Dispatch, &m.Poll, &m.Claim, &m
	if m.Dispatch.HotCapacity != 0 {
		v.add("Mode.Dispatch.HotCapacity", fmt.Sprintf("is %d, but OrderedByKey has no hot queue; leave it out", m.Dispatch.HotCapacity))
	}
	if m.Claim.TenantsInTurn {
		v.add("Mode.Claim.TenantsInTurn", "is set, but OrderedByKey claims key after key, whatever their tenants; leave it out, or take MultiNode")
	}
	if m.OnDead > SkipDead {
		v.add("Mode.OnDead", "is not one of outbox.BlockKey and outbox.SkipDead")
	}
	length := validator{what: v.what}
	length.count("Mode.RunLength", m.RunLength, maxRunLength)
	v.errs = append(v.errs, length.errs...)
	if _, can := b.Store.(RunReader); b.Store != nil && !can {
		v.add("Store", fmt.Sprintf("is a %T, which has no ReadRuns, so it cannot deliver by key; take one from package sqlstore, or another mode", b.Store))
	}
	m.RunLength = defaultTo(m.RunLength, defaultRunLength)
}

// requireTenantReader reports a store that cannot read tenants in turn.
func requireTenantReader(v *validator, inTurn bool, store Store) {
	if _, can := store.(TenantReader); inTurn && store != nil && !can {
		v.add("Store", fmt.Sprintf("is a %T, which has no ReadTenants, so it cannot read tenants in turn; take one from package sqlstore, or do not claim the tenants in turn", store))
	}
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
	dispatch := func(v *validator) {
		b.dispatch.validate(v)
		b.ruleCheck().fitAll(v, b.dispatch.Rules)
	}
	if b.inOrder { // Ordered has the fields of Dispatch itself
		nested("Mode", dispatch)
	} else if b.dispatch != nil {
		nested("Mode.Dispatch", dispatch)
	}
	if b.poll != nil {
		nested("Mode.Poll", b.poll.validate)
	}
	if b.claim != nil {
		nested("Mode.Claim", b.claim.validate)
	}
	if b.Purge != nil {
		nested("Purge", b.Purge.validate)
		if b.Purge.Undelivered && b.dispatch != nil {
			v.add("Purge.Undelivered", "is set, but this process delivers, and an event must not be deleted before; leave it out, or take WriterOnly")
		}
	}
}

// ruleCheck knows which rules the mode has.
func (b *builder) ruleCheck() ruleCheck {
	return ruleCheck{inOrder: b.inOrder, byKey: b.byKey != nil, purges: b.Purge != nil}
}

// build makes the outbox from a valid config.
func (b *builder) build() *Outbox {
	b.Store = bound(b.Store, b.DB)
	b.Metrics, b.Logger, b.Clock = metricsOr(b.Metrics), loggerOr(b.Logger), clockOr(b.Clock)
	if nilness.IsNil(b.RetryPolicy) {
		b.RetryPolicy = ExponentialBackoff(0, 0)
	}
	o := &Outbox{
		db: b.DB, store: b.Store, mode: b.Mode, purge: b.Purge,
		metrics: b.Metrics, log: b.Logger, clock: b.Clock, closed: make(chan struct{}), builder: *b,
	}
	o.version = cmp.Or(b.Version, programVersion())
	o.counts = &counts{Metrics: b.Metrics}
	b.Metrics = o.counts
	o.ending, o.end = context.WithCancel(context.Background())
	o.registry, _ = b.Registry.(*Registry)
	o.announcer = newAnnouncer(b.DB, b.Store, b.Logger, b.Clock, o.node, nil)
	if b.dispatch != nil {
		b.buildEngine(o)
	} else {
		o.writerName = leases.NewOwner()
	}
	rules := b.kindRules()
	o.maxDueAges = func() map[EventKind]time.Duration { return rules().maxDueAges }
	if b.Purge != nil {
		o.purger = newPurger(b, func() map[EventKind]time.Duration { return rules().retentions })
	}
	if b.Notifier != nil {
		o.notifications = newNotifications(channel{b.Notifier, b.DB, b.Store}, b.listens(o.poller), b.Logger)
		if o.dispatcher != nil {
			o.dispatcher.notifications = o.notifications
		}
	}
	if b.dispatch != nil && b.drain == nil {
		o.replayer = newReplayer(b, o)
	}
	o.writer = newWriter(b, o)
	o.dead = &DeadLetters{db: b.DB, store: b.Store, clock: o.clock, audit: o.auditor(), wake: o.Wake}
	if b.byKey != nil {
		o.dead.replayed = StatusRetry
	}
	return o
}

// listens is the poller that notifications wake; nil in a Drain, which looks for no further events.
func (b *builder) listens(p *poller) *poller {
	if b.drain != nil {
		return nil
	}
	return p
}

// buildEngine makes the dispatcher and the poller, and the hold in a mode without leases.
func (b *builder) buildEngine(o *Outbox) {
	o.dispatcher = newDispatcher(b)
	o.poller = newPoller(b, o.dispatcher)
	o.announcer.polled = o.poller.polled
	if b.claim == nil {
		owner := o.dispatcher.leases.names.Owner
		o.hold = hold.New(owner, &heldTable{db: b.DB, store: b.Store, owner: owner, poller: o.poller}, b.Logger)
		o.dispatcher.hold = o.hold
	}
}

// newDispatcher makes the dispatcher of an outbox.
func newDispatcher(b *builder) *dispatcher {
	d := &dispatcher{
		byKey: b.byKey != nil, inOrder: b.inOrder, claims: b.claim != nil, drain: b.drain,
		opts: b.dispatch.withDefaults(), fits: b.ruleCheck(), registry: b.Registry, chain: b.chain,
		metrics: b.Metrics, log: b.Logger, clock: b.Clock,
		quit: make(chan struct{}), abort: make(chan struct{}), closed: make(chan struct{}),
	}
	d.opts.Rules = maps.Clone(d.opts.Rules)
	d.options = Rules{MaxAttempts: d.opts.MaxAttempts, RetryPolicy: b.RetryPolicy, ListenerTimeout: d.opts.ListenerTimeout, OnDone: Keep}
	if b.Purge != nil {
		d.options.OnDone = defaultTo(b.Purge.OnDone, Keep)
	}
	d.readRules(false)
	lease := ClaimOptions{LeaseDuration: suspectLeaseDuration}
	if d.claims {
		lease = *b.claim
	}
	d.drops = logburst.Burst{Log: d.log, Level: slog.LevelWarn, Message: "outbox: the hot queue is full or closed; its events stay in the table until a poller reads them"}
	d.panics = logburst.ByCause{Log: d.log, Level: slog.LevelError, Message: "outbox: a listener panicked", Single: causeLines}
	d.failed = logburst.ByCause{Log: d.log, Level: slog.LevelWarn, Message: "outbox: delivery failed; it will be tried again", Single: causeLines}
	d.unrouted = logburst.ByCause{Log: d.log, Level: slog.LevelWarn, Message: "outbox: events have no listener in this process and are left to others; register a listener, here or in another process", Single: 1}
	d.policyPanics = logburst.Burst{Log: d.log, Level: slog.LevelError, Message: "outbox: the retry policy panicked"}
	d.initQueues(b.poll.withDefaults().BatchSize)
	d.listenerCtx, d.cancelListeners = context.WithCancel(context.Background())
	d.unheard, d.rates = &unheard{registry: b.Registry}, &rates{}
	d.track = newTracker(d.wakePoller)
	d.leases = newTableLeases(b.DB, b.Store, lease.withDefaults(), d.track, d.log, d.freed)
	d.keys = newKeys(d.log, d.clock, d.leases.names.Owner)
	d.pauses = newPauses(b.DB, b.Store, d.log, d.clock, d.leases.names.Owner)
	if d.deferring() {
		d.pauses.keys = d.keys
	}
	d.failures = newFailures(d.pauses, d.keys)
	if d.claims && !d.byKey && !lease.TenantsInTurn {
		d.rights = newRights(d.leases, d.log)
	}
	d.fleet = &fleet{db: b.DB, store: b.Store, owner: d.leases.names.Owner, log: d.log}
	d.completer = newCompleter(d, b.DB, b.Store)
	return d
}

// suspectLeaseDuration is the lease of an event that a dead process may have
// had in hand, in a mode without leases. If the event kills this process too, the
// next process delivers the other events first for that long.
const suspectLeaseDuration = time.Minute

// newPoller makes the poller of an outbox, which hands events to d.
func newPoller(b *builder, d *dispatcher) *poller {
	p := &poller{
		polled: make(chan struct{}), dispatcher: d, inOrder: b.inOrder,
		db: b.DB, store: b.Store, opts: b.poll.withDefaults(),
		metrics: b.Metrics, log: b.Logger, clock: b.Clock,
		agenda: agenda.New(), busy: make(chan struct{}, 1),
	}
	p.failing = logburst.Burst{Log: p.log, Level: slog.LevelError, Message: "outbox: polling failed; trying again", Ended: "outbox: polling works again"}
	p.undecodable = logburst.ByCause{Log: p.log, Level: slog.LevelError, Message: "outbox: event cannot be decoded; it is dead", Single: causeLines}
	p.unburied = logburst.Burst{Log: p.log, Level: slog.LevelError, Message: "outbox: undecodable events could not be marked dead; the next poll tries again"}
	p.loop = loop.New(p.body(), ErrClosed)
	p.free, p.takeovers = sourcesOf(b, p)
	d.poller = p
	return p
}

// sourcesOf makes the sources of a mode.
func sourcesOf(b *builder, p *poller) (free, takeovers source) {
	switch {
	case b.byKey != nil:
		keys := keyReader{p: p, store: b.Store.(RunReader), length: b.byKey.RunLength, skipDead: b.byKey.OnDead == SkipDead}
		return &freeRuns{keys}, &runTakeovers{keyReader: keys}
	case b.claim == nil:
		return &dueRows{p}, &suspects{p: p}
	case b.claim.TenantsInTurn:
		return &tenantRows{p: p, store: b.Store.(TenantReader)}, &leaseTakeovers{p}
	default:
		free := &rangeRows{p: p, rights: p.dispatcher.rights}
		return free, &rangeTakeovers{p: p, free: free}
	}
}

// kindRules returns a function that resolves the rules of the kinds, of which listeners may bring more
// until Start. It serves what looks at the rules now and then, also in [WriterOnly].
func (b *builder) kindRules() func() *ruleset {
	var operator map[EventKind]Rules
	if b.dispatch != nil {
		operator = maps.Clone(b.dispatch.Rules)
	}
	return func() *ruleset { return resolve(Rules{}, operator, rulesIn(b.Registry, false)) }
}

// newPurger makes the purger of an outbox.
func newPurger(b *builder, retentions func() map[EventKind]time.Duration) *purger {
	p := &purger{
		db: b.DB, store: b.Store, opts: b.Purge.withDefaults(), byAge: b.Purge.Undelivered,
		log: b.Logger, clock: b.Clock, retentions: retentions,
	}
	p.loop = loop.New(p.run, ErrClosed)
	return p
}

// newReplayer makes the replayer of an outbox that is started.
func newReplayer(b *builder, o *Outbox) *replayer {
	r := &replayer{db: b.DB, store: b.Store, log: b.Logger, asked: make(chan struct{}, 1), settled: settled, delivers: o.poller.delivers, added: o.Wake}
	r.hears = func(string, AggregateType, []EventType) bool { return true } // another registry does not say
	if own, is := b.Registry.(*Registry); is {
		r.hears = own.hears
	}
	r.failing = logburst.Burst{Log: b.Logger, Level: slog.LevelWarn, Message: "outbox: a replay of delivered events failed; trying again", Ended: "outbox: the replays of delivered events go on"}
	r.loop = loop.New(r.run, ErrClosed)
	return r
}

// newWriter makes the writer of an outbox.
func newWriter(b *builder, o *Outbox) *Writer {
	w := &Writer{
		store: b.Store, source: PoolOf(b.DB), hooks: slices.Clone(b.Hooks), poller: o.poller,
		counts: o.counts, log: b.Logger, clock: b.Clock, notifications: o.notifications,
		requireKey: b.byKey != nil && b.byKey.RequireKey,
	}
	if b.dispatch != nil && !b.dispatch.PollerOnly {
		w.hot = o.dispatcher
	}
	w.observed = slices.ContainsFunc(w.hooks, func(h WriterHook) bool { return h.AfterCommit != nil })
	return w
}
