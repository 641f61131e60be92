package outbox

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outboxkit/outbox-go/outbox/internal/logburst"
)

// pausePace is the time between two readings of the pauses while the poller is busy, and between two
// attempts to store a pause.
const pausePace = time.Second

// pauses are the kinds of events that are paused, as this process last read them, and the automatic pauses
// that this process has made since. The poller reads and stores pauses; the hot path and the workers use
// the last result.
type pauses struct {
	db    DB
	store Store
	log   *slog.Logger
	clock Clock
	owner string // of this process
	keys  *keys  // paused keys; nil in modes in which keys cannot wait

	now  atomic.Pointer[pauseSet]
	mu   sync.Mutex    // held while now is replaced
	busy chan struct{} // holds a token while the pauses are read or stored

	last  atomic.Int64              // when the last reading began, in nanoseconds since 1970
	stale atomic.Bool               // the pauses may have changed
	tryAt atomic.Pointer[time.Time] // when to store pauses again after a failure; nil: now

	asked    logburst.ByCause
	broken   logburst.ByCause
	unstored logburst.Burst
	notDue   logburst.Burst
}

// pauseSet is the state of the pauses and never changes.
type pauseSet struct {
	kinds map[EventKind]paused
	// ended are kinds whose automatic pause ended: their next delivery is a probe.
	ended   map[EventKind]paused
	changed chan struct{} // closed when other kinds are paused
	// old: this process began to hold the table, and has not read the pauses since then.
	old bool
}

// paused is a pause as this process knows it.
type paused struct {
	Pause
	ends     time.Time // by this process's clock; zero: no end
	unstored bool      // this process made the pause, and no table has it yet
	probing  bool      // the pause ended, and a probe is under way
}

func newPauses(db DB, store Store, log *slog.Logger, clock Clock, owner string) *pauses {
	p := &pauses{
		db: db, store: store, log: log, clock: clock, owner: owner, busy: make(chan struct{}, 1),
		asked:  logburst.ByCause{Log: log, Level: slog.LevelWarn, Message: "outbox: a listener paused its kind of event", Single: causeLines},
		broken: logburst.ByCause{Log: log, Level: slog.LevelWarn, Message: "outbox: failures in a row paused their kind of event", Single: causeLines},
		unstored: logburst.Burst{
			Log: log, Level: slog.LevelWarn, Message: "outbox: an automatic pause could not be stored, so only this process keeps to it; trying again",
		},
		notDue: logburst.Burst{Log: log, Level: slog.LevelWarn, Message: "outbox: the events of a key that was resumed could not be made due; trying again"},
	}
	p.now.Store(&pauseSet{kinds: map[EventKind]paused{}, ended: map[EventKind]paused{}, changed: make(chan struct{})})
	return p
}

// has reports whether an event's kind is paused, or may be for all that this process knows.
func (p *pauses) has(env *Envelope) bool {
	set := p.now.Load()
	if set.old || len(set.kinds) == 0 {
		return set.old
	}
	_, paused := set.kinds[kindOf(env)]
	return paused
}

// gained is called when this process begins to hold the table: other processes may have paused kinds
// while it waited. The events that it commits are left to the poller, which reads the pauses first.
func (p *pauses) gained() {
	if p.isDue() {
		p.change(func(_, next *pauseSet) { next.old = true })
	}
}

// stops reports whether a delivery may not begin, because the kind is paused and the delivery is no
// probe.
func (p *pauses) stops(dl *delivery) bool {
	return p.has(dl.env) && (!dl.probe || !p.now.Load().kinds[kindOf(dl.env)].probing)
}

func (p *pauses) hasKind(kind EventKind) bool {
	_, paused := p.now.Load().kinds[kind]
	return paused
}

func (p *pauses) kinds() []EventKind {
	return slices.Collect(maps.Keys(p.now.Load().kinds))
}

// changed is closed when the pauses change.
func (p *pauses) changed() <-chan struct{} { return p.now.Load().changed }

// lock waits until no other goroutine reads or stores the pauses: an older result must not replace a
// newer result.
func (p *pauses) lock(ctx context.Context) error {
	select {
	case p.busy <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *pauses) unlock() { <-p.busy }

// read reads the pauses now.
func (p *pauses) read(ctx context.Context) error {
	if err := p.lock(ctx); err != nil {
		return err
	}
	defer p.unlock()
	p.stale.Store(false)
	began := time.Now()
	list, ahead, err := p.list(ctx)
	if err != nil {
		p.stale.Store(true)
		return err
	}
	p.last.Store(began.UnixNano())
	kinds, keys := splitPauses(list)
	p.change(func(was, next *pauseSet) { p.learn(was, next, kinds, ahead) })
	if p.keys != nil {
		p.keys.learn(keys, ahead)
	}
	return nil
}

// splitPauses separates the pauses of kinds from the pauses of keys.
func splitPauses(list []Pause) (kinds, keys []Pause) {
	for _, pause := range list {
		if pause.AggregateID == "" {
			kinds = append(kinds, pause)
		} else {
			keys = append(keys, pause)
		}
	}
	return kinds, keys
}

// list reads the pauses, and, if a pause has an end, how far the database's clock is ahead of the
// clock of this process.
func (p *pauses) list(ctx context.Context) (list []Pause, ahead time.Duration, err error) {
	list, err = p.store.Paused(ctx, p.db)
	ends := slices.ContainsFunc(list, func(pause Pause) bool { return !pause.Until.IsZero() })
	if err != nil || !ends {
		return list, 0, err
	}
	now, err := p.store.Now(ctx, p.db)
	return list, now.Sub(p.clock.Now()), err
}

// learn makes the next set from the pauses of the table. A pause that is not stored yet stays, and so
// does a probe.
func (p *pauses) learn(was, next *pauseSet, list []Pause, ahead time.Duration) {
	clear(next.kinds)
	next.old = false
	for _, pause := range list {
		known := paused{Pause: pause}
		if !pause.Until.IsZero() {
			known.ends = pause.Until.Add(-ahead)
		}
		next.kinds[pause.Kind] = known
		delete(next.ended, pause.Kind)
	}
	now := p.clock.Now()
	for kind, old := range was.kinds {
		listed, still := next.kinds[kind]
		switch {
		case old.unstored && old.ends.After(now) && (!still || listed.Automatic && listed.ends.Before(old.ends)):
			next.kinds[kind] = old
		case still:
		case old.probing:
			next.kinds[kind] = old
		case old.Automatic && old.ends.Sub(now) < pausePace: // the end is known about as exactly as the database is fast
			next.ended[kind] = old
		}
	}
}

// change replaces the set by a copy that a function changed.
func (p *pauses) change(edit func(was, next *pauseSet)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	was := p.now.Load()
	next := &pauseSet{kinds: maps.Clone(was.kinds), ended: maps.Clone(was.ended), changed: was.changed, old: was.old}
	edit(was, next)
	if !sameKeys(was.kinds, next.kinds) {
		next.changed = make(chan struct{})
		defer close(was.changed)
	}
	p.now.Store(next)
	p.logChange(was.kinds, next.kinds)
}

func sameKeys(a, b map[EventKind]paused) bool {
	return maps.EqualFunc(a, b, func(paused, paused) bool { return true })
}

// logChange logs the pauses that began and ended. A probe is the end of a pause.
func (p *pauses) logChange(was, now map[EventKind]paused) {
	for kind, pause := range now {
		if before, known := was[kind]; !pause.probing && !pause.unstored && (!known || before.probing || !before.Since.Equal(pause.Since)) {
			p.log.Info("outbox: a kind of event is paused", pause.attrs()...)
		}
	}
	for kind, pause := range was {
		if _, still := now[kind]; !still && !pause.probing {
			p.log.Info("outbox: a kind of event is resumed", logKeyEventType, string(kind.EventType), logKeyAggregateType, string(kind.AggregateType), logKeySince, pause.Since)
		}
	}
}

// attrs are the attributes of a log line about a pause that begins.
func (p paused) attrs() []any {
	attrs := []any{logKeyEventType, string(p.Kind.EventType), logKeyAggregateType, string(p.Kind.AggregateType), logKeySince, p.Since}
	if !p.Until.IsZero() {
		attrs = append(attrs, logKeyUntil, p.Until)
	}
	if p.Reason != "" {
		attrs = append(attrs, logKeyReason, p.Reason)
	}
	if p.By != "" {
		attrs = append(attrs, logKeyBy, p.By)
	}
	return attrs
}

// isDue reports whether the poller is to read the pauses.
func (p *pauses) isDue() bool {
	if p.stale.Load() || time.Now().UnixNano()-p.last.Load() >= int64(pausePace) {
		return true
	}
	next := p.next()
	return !next.IsZero() && !next.After(p.clock.Now())
}

// next is when the poller has to read or to store pauses before the interval ends; zero: no such time.
func (p *pauses) next() time.Time {
	next := p.nextOfKinds()
	if p.keys != nil {
		if at := p.keys.nextShared(); next.IsZero() || !at.IsZero() && at.Before(next) {
			return at
		}
	}
	return next
}

// nextOfKinds is when the first pause of a kind ends, or when a pause is to be stored: at once, or when a pause
// that could not be stored is tried again. Zero: no such time.
func (p *pauses) nextOfKinds() (next time.Time) {
	set := p.now.Load().kinds
	if len(set) == 0 {
		return next
	}
	earliest := func(t time.Time) {
		if next.IsZero() || t.Before(next) {
			next = t
		}
	}
	for _, pause := range set {
		if !pause.ends.IsZero() && !pause.probing {
			earliest(pause.ends)
		}
		switch at := p.tryAt.Load(); {
		case !pause.unstored:
		case at != nil:
			earliest(*at)
		default: // Since is now, or a little earlier
			earliest(pause.Since)
		}
	}
	return next
}
