package outbox

import (
	"fmt"
	"time"
)

// spareAttempts is the number of attempts with which an event can survive being beside a poison
// event a few times. With fewer attempts, events are taken over one by one.
const spareAttempts = 5

// ruleset has the rules that apply to each kind of event. A ruleset is immutable.
type ruleset struct {
	others *Rules               // the options of the outbox, for kinds without rules
	kinds  map[EventKind]*Rules // by pair and listener; nil: no kind has rules
	few    bool                 // a kind has fewer attempts than spareAttempts
	// breaks: a kind has a [Breaker]. boundsKeys: the keys of a kind have bounds.
	breaks, boundsKeys bool
	// retentions are how long the rows of the kinds are kept that say so.
	retentions map[EventKind]time.Duration
	// maxDueAges are the limits of lateness of the kinds that have one.
	maxDueAges map[EventKind]time.Duration
}

// of are the rules of a kind, and of a listener if the kind names one.
func (s *ruleset) of(kind EventKind) *Rules {
	if r := s.kinds[kind]; r != nil {
		return r
	}
	if r := s.kinds[kind.pair()]; r != nil {
		return r
	}
	return s.others
}

// resolve finds out which rules apply: field by field the rules of the operator, then the rules of
// the listeners, then the options of the outbox. listeners has all listeners, by pair and name.
func resolve(options Rules, operator, listeners map[EventKind]Rules) *ruleset {
	s := &ruleset{others: options.settled()}
	pairs := map[EventKind]*pairRules{}
	at := func(kind EventKind) *pairRules {
		if pairs[kind] == nil {
			pairs[kind] = &pairRules{listeners: map[EventKind]Rules{}}
		}
		return pairs[kind]
	}
	for kind, r := range listeners {
		at(kind.pair()).listeners[kind] = r
	}
	for kind, r := range operator {
		at(kind.orGlobal()).operator = r
	}
	for pair, p := range pairs {
		if p.isSaid() {
			s.add(pair, p, options)
		}
	}
	s.few = s.others.hasFew()
	for _, r := range s.kinds {
		s.few = s.few || r.hasFew()
		s.breaks, s.boundsKeys = s.breaks || r.Breaker.Failures > 0, s.boundsKeys || r.boundsKeys()
	}
	return s
}

func (r *Rules) hasFew() bool { return r.MaxAttempts != Endless && r.MaxAttempts < spareAttempts }

// pairRules are the rules that are said for a pair of types.
type pairRules struct {
	operator  Rules
	listeners map[EventKind]Rules
}

// isSaid reports whether a rule is said.
func (p *pairRules) isSaid() bool {
	said := !p.operator.isZero()
	for _, r := range p.listeners {
		said = said || !r.isZero()
	}
	return said
}

func (s *ruleset) add(pair EventKind, p *pairRules, options Rules) {
	said := p.operator
	for _, r := range p.listeners {
		said = said.or(r.ofKind())
	}
	if s.kinds == nil {
		s.kinds, s.retentions, s.maxDueAges = map[EventKind]*Rules{}, map[EventKind]time.Duration{}, map[EventKind]time.Duration{}
	}
	s.kinds[pair] = p.ofEvent(said, options).settled()
	for kind, r := range p.listeners {
		s.kinds[kind] = p.operator.or(r).or(said).or(options).settled()
	}
	if said.Retention != 0 {
		s.retentions[pair] = max(said.Retention, 0) // NoRetention
	}
	if said.MaxDueAge != 0 {
		s.maxDueAges[pair] = said.MaxDueAge
	}
}

// ofEvent are the rules of an event whose listeners have names, in the delivery to all of them: as
// many attempts as a listener may have, and no timeout beside the timeouts of the listeners.
func (p *pairRules) ofEvent(said, options Rules) Rules {
	r, ownTimeouts := said.or(options), p.operator.ListenerTimeout != 0
	attempts := 0
	for _, l := range p.listeners {
		ownTimeouts = ownTimeouts || l.ListenerTimeout != 0
		if n := p.operator.or(l).or(options).MaxAttempts; n == Endless || attempts != Endless && n > attempts {
			attempts = n
		}
	}
	r.MaxAttempts = defaultTo(attempts, r.MaxAttempts)
	if ownTimeouts && len(p.listeners) > 0 {
		r.ListenerTimeout = NoTimeout
	}
	return r
}

// settled returns the rules as deliveries read them.
func (r Rules) settled() *Rules {
	if r.ListenerTimeout == NoTimeout {
		r.ListenerTimeout = 0
	}
	return &r
}

// rulesIn are the rules of the listeners of a registry, by pair and name; see
// [Registry.listenerRules].
func rulesIn(registry ListenerRegistry, seal bool) map[EventKind]Rules {
	if r, ok := registry.(*Registry); ok {
		return r.listenerRules(seal)
	}
	return nil
}

// ruleCheck reports rules that cannot apply.
type ruleCheck struct {
	inOrder bool // as in [Ordered]
	byKey   bool // as in [OrderedByKey]
	purges  bool // old rows are purged
}

// fit reports the fields of rules that the mode does not have.
func (c ruleCheck) fit(v *validator, r Rules) {
	switch {
	case c.inOrder:
		r.refuse(v, "Ordered has one worker and one attempt; leave it out, or take another mode", "MaxAttempts", "RetryPolicy", "Concurrency", "Rate", "Burst", "Fleetwide")
		r.refuse(v, "events that wait because of their key would lose their place in the order; leave it out, or take another mode", "KeyConcurrency", "KeyRate", "Breaker.PerKey")
	case c.byKey:
		r.refuse(v, "in OrderedByKey a worker delivers the events of a key, whatever their kinds; leave it out", "Concurrency", "Rate", "Burst", "Fleetwide", "KeyConcurrency", "KeyRate")
		r.refuse(v, "in OrderedByKey an event that fails holds back its key, for as long as the RetryPolicy says; leave it out for a breaker of the kind", "Breaker.PerKey")
	}
	if !c.purges {
		r.refuse(v, "Config.Purge is nil, so nothing deletes old rows; set PurgeOptions", "Retention")
	}
}

// fitAll reports the fields of an operator's rules that the mode does not have.
func (c ruleCheck) fitAll(v *validator, operator map[EventKind]Rules) {
	for _, kind := range sortedKinds(operator) {
		sub := validator{what: fmt.Sprintf("%s.Rules[%s]", v.what, kind.orGlobal())}
		c.fit(&sub, operator[kind])
		v.errs = append(v.errs, sub.errs...)
	}
}

// atStart reports the problems of rules that only the listeners show. what names the field that has
// the rules of the operator.
func (c ruleCheck) atStart(what string, operator map[EventKind]Rules, registry ListenerRegistry) error {
	listeners := rulesIn(registry, false)
	if len(operator)+len(listeners) == 0 {
		return nil
	}
	var v validator
	for _, kind := range sortedKinds(operator) {
		pair := kind.orGlobal()
		sub := validator{what: fmt.Sprintf("%s.Rules[%s]", what, pair)}
		l, found := registry.ListenerFor(pair.AggregateType, pair.EventType)
		if !found {
			sub.errs = append(sub.errs, &FieldError{Field: sub.what, Problem: "is for a kind for which no listener is registered; register one, or correct the kind"})
		}
		refuseBatched(&sub, l, operator[kind])
		refuseNamed(&sub, l, operator[kind])
		v.errs = append(v.errs, sub.errs...)
	}
	for _, kind := range sortedKinds(listeners) {
		sub := validator{what: rulesOfBinding(kind)}
		l, _ := registry.ListenerFor(kind.AggregateType, kind.EventType)
		c.fit(&sub, listeners[kind])
		refuseBatched(&sub, l, listeners[kind])
		refuseNamed(&sub, l, listeners[kind])
		v.errs = append(v.errs, sub.errs...)
	}
	for kind, r := range resolve(Rules{}, operator, listeners).kinds {
		if kind.Listener != "" {
			continue
		}
		if r.Fleetwide && !r.isLimited() {
			v.errs = append(v.errs, &FieldError{Field: fmt.Sprintf("%s.Rules[%s].Fleetwide", what, kind), Problem: "is set, but nothing is bounded; set the Concurrency, the Rate, the KeyConcurrency or the KeyRate too"})
		}
		if r.Burst > 0 && r.Rate == 0 {
			v.errs = append(v.errs, &FieldError{Field: fmt.Sprintf("%s.Rules[%s].Burst", what, kind), Problem: fmt.Sprintf("is %d without a rate; set the Rate too", r.Burst)})
		}
		if r.Breaker.Failures == 0 {
			sub := validator{what: fmt.Sprintf("%s.Rules[%s]", what, kind)}
			r.refuse(&sub, "nothing says how many failures; set Breaker.Failures too", "Breaker.Pause", "Breaker.PerKey")
			v.errs = append(v.errs, sub.errs...)
		}
	}
	return v.err()
}

// refuseBatched reports bounds for a listener that gets batches: their size and their concurrency are
// bounds of their own.
func refuseBatched(v *validator, l Listener, r Rules) {
	if _, batched := l.(*batchListener); batched {
		r.refuse(v, "the listener gets batches; its BatchOptions.Concurrency bounds the calls", "Concurrency", "Rate", "Burst", "Fleetwide", "KeyConcurrency", "KeyRate")
	}
}

// refuseNamed reports a breaker for listeners that have names: the failures of one say nothing of the
// receivers of the others.
func refuseNamed(v *validator, l Listener, r Rules) {
	if _, named := l.(listeners); named {
		r.refuse(v, "the listeners of the kind have names, and the receiver of one may be down while the others are not; leave it out, or let one listener have the kind", "Breaker.Failures", "Breaker.Pause", "Breaker.PerKey")
	}
}
