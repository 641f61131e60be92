package outbox

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"
)

// pausePace is the time between two readings of the pauses while the poller is busy.
const pausePace = time.Second

// pauses are the kinds of events that are paused, as this process last read them. The poller reads
// the kinds; the hot path and the workers use the last result.
type pauses struct {
	db    DB
	store Store
	log   *slog.Logger

	now  atomic.Pointer[pauseSet]
	busy chan struct{} // holds a token while the pauses are read

	last  atomic.Int64 // when the last reading began, in nanoseconds since 1970
	stale atomic.Bool  // another process may have changed the pauses
}

// pauseSet is the result of a reading and never changes.
type pauseSet struct {
	kinds   map[EventKind]Pause
	changed chan struct{} // closed when another reading differs
}

func newPauses(db DB, store Store, log *slog.Logger) *pauses {
	p := &pauses{db: db, store: store, log: log, busy: make(chan struct{}, 1)}
	p.now.Store(&pauseSet{changed: make(chan struct{})})
	return p
}

// has reports whether an event's kind is paused.
func (p *pauses) has(env *Envelope) bool {
	set := p.now.Load().kinds
	if len(set) == 0 {
		return false
	}
	_, paused := set[kindOf(env)]
	return paused
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

// read reads the pauses now. Only one reading runs at a time, so that an older result does not
// replace a newer result.
func (p *pauses) read(ctx context.Context) error {
	select {
	case p.busy <- struct{}{}:
		defer func() { <-p.busy }()
	case <-ctx.Done():
		return ctx.Err()
	}
	p.stale.Store(false)
	began := time.Now()
	list, err := p.store.Paused(ctx, p.db)
	if err != nil {
		p.stale.Store(true)
		return err
	}
	p.last.Store(began.UnixNano())
	was := p.now.Load()
	set := &pauseSet{kinds: make(map[EventKind]Pause, len(list)), changed: make(chan struct{})}
	for _, pause := range list {
		set.kinds[pause.Kind] = pause
	}
	if sameKeys(was.kinds, set.kinds) {
		return nil
	}
	p.now.Store(set)
	close(was.changed)
	p.logChange(was.kinds, set.kinds)
	return nil
}

func (p *pauses) logChange(was, now map[EventKind]Pause) {
	for kind, pause := range now {
		if _, known := was[kind]; !known {
			p.log.Info("outbox: a kind of event is paused", logKeyEventType, string(kind.EventType), logKeyAggregateType, string(kind.AggregateType), logKeySince, pause.Since)
		}
	}
	for kind, pause := range was {
		if _, still := now[kind]; !still {
			p.log.Info("outbox: a kind of event is resumed", logKeyEventType, string(kind.EventType), logKeyAggregateType, string(kind.AggregateType), logKeySince, pause.Since)
		}
	}
}

func sameKeys(a, b map[EventKind]Pause) bool {
	return maps.EqualFunc(a, b, func(Pause, Pause) bool { return true })
}

// isDue reports whether the poller is to read the pauses.
func (p *pauses) isDue() bool {
	return p.stale.Load() || time.Now().UnixNano()-p.last.Load() >= int64(pausePace)
}
