package outbox

import (
	"context"
	"errors"
	"time"
)

// The pauses of keys in all processes. A key is paused in memory at once. The poller then stores the pause
// in the control table, from which the other processes learn the pause when they read the pauses.
//
// A pause can be lifted before its end. All events that a pause deferred are due at one of two times: the
// end of the pause, and probeTime later. So each process that learns that a pause was lifted makes the
// events of the key that are due exactly then due at once.

// Limits of shared pauses of keys.
const (
	// maxSharedKeys is how many pauses of keys a table has, about: processes that store pauses at the same
	// time may exceed maxSharedKeys.
	maxSharedKeys = 1_000
	// storingKeys is how long the poller stores pauses of keys before it goes on with its other work.
	storingKeys = 100 * time.Millisecond
)

// sharedKeys are the pauses of keys that are in the table, or are to be there. The lock of [keys] guards
// sharedKeys.
type sharedKeys struct {
	stored   map[keyOfKind]time.Time // as last read: the end of the pause by the clock of this process
	unstored map[keyOfKind]Pause     // made by this process, and in no table yet
	storeAt  time.Time               // when to store pauses again after a failure
	lifted   []liftedKey
}

// liftedKey is a key whose pause was lifted.
type liftedKey struct {
	key   keyOfKind
	until time.Time // the end of the pause
	at    time.Time // when to make the events due
	last  bool      // outcomes that were being stored at the first time are stored by now
}

func newSharedKeys() sharedKeys {
	return sharedKeys{stored: map[keyOfKind]time.Time{}, unstored: map[keyOfKind]Pause{}}
}

// share notes a pause that the poller is to store. A pause beyond maxSharedKeys stays in this process.
func (k *keys) share(pause Pause) {
	key, sh := pause.key(), &k.shared
	_, isStored := sh.stored[key]
	_, isUnstored := sh.unstored[key]
	if !isStored && !isUnstored && len(sh.stored)+len(sh.unstored) >= maxSharedKeys {
		k.full.Add(1)
		return
	}
	sh.unstored[key] = pause
}

// key is the key that is paused.
func (p *Pause) key() keyOfKind { return keyOfKind{p.Kind, p.AggregateID} }

// learn takes over the pauses of keys that the table has. ahead is how far the clock of the database is
// ahead of the clock of this process.
func (k *keys) learn(list []Pause, ahead time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	sh, was, now := &k.shared, k.shared.stored, k.clock.Now()
	if len(list) == 0 && len(was) == 0 {
		return
	}
	sh.stored = make(map[keyOfKind]time.Time, len(list))
	for i := range list {
		pause := &list[i]
		key, ends := pause.key(), sharedEnd(pause.Until, ahead)
		if _, unstored := sh.unstored[key]; unstored && pause.Automatic && !ends.After(sh.unstored[key].Until) {
			continue // this process is about to store a later end
		}
		before, known := was[key]
		if known && before.Sub(ends).Abs() < pausePace {
			ends = before // the same pause: the clocks are compared as exactly as the database is fast
		}
		sh.stored[key] = ends
		delete(sh.unstored, key)
		s := k.state(key)
		if s == nil || s.paused.Equal(ends) || !ends.After(now) && !s.paused.After(now) {
			continue
		}
		// An automatic pause that ends earlier than the stored pause did began after that pause was lifted.
		if pause.Automatic && s.paused.After(ends) && (!known || !before.After(ends)) {
			continue
		}
		if before.Equal(ends) && s.paused.IsZero() {
			continue // the probe was faster than the clock of the database
		}
		if s.paused.Sub(ends).Abs() > pausePace {
			k.replaced(key, s, now)
		}
		s.pauseUntil(ends, pause.Reason)
	}
	for key, ends := range was {
		_, still := sh.stored[key]
		_, unstored := sh.unstored[key]
		if !still && !unstored && ends.Sub(now) > pausePace {
			if s := k.states[key]; s == nil || !s.paused.Equal(ends) {
				k.lift(key, ends, now)
			}
			k.unpause(key)
		}
	}
}

// sharedEnd is the end of a pause by the clock of this process. While the clocks agree, all processes take
// the same end, so that the events that they defer have the same due times.
func sharedEnd(until time.Time, ahead time.Duration) time.Time {
	if ahead.Abs() < probeTime/2 {
		return until
	}
	return storedTime(until.Add(-ahead))
}

// lift notes that the events that wait for the end of a pause are to be due now.
func (k *keys) lift(key keyOfKind, until, now time.Time) {
	k.shared.lifted = append(k.shared.lifted, liftedKey{key: key, until: until, at: now})
}

// replaced notes that the pause of a key is replaced or lifted. When the pause is replaced by another pause,
// the events that wait for its end come up now, and are deferred to the end of the other pause. Otherwise
// they would not be found when the other pause is lifted.
func (k *keys) replaced(key keyOfKind, s *keyState, now time.Time) {
	if s.paused.After(now) {
		k.lift(key, s.paused, now)
	}
}

// unpause forgets the pause of a key, which was lifted.
func (k *keys) unpause(key keyOfKind) {
	if s := k.states[key]; s != nil {
		k.replaced(key, s, k.clock.Now())
		s.paused, s.probe = time.Time{}, nil
		k.settle(key, s)
	}
}

// nextShared is when the poller has to store pauses of keys, or to make events due; zero: no such time.
func (k *keys) nextShared() (next time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.shared.unstored) > 0 {
		next = k.shared.storeAt
		if now := k.clock.Now(); next.Before(now) {
			next = now
		}
	}
	for i := range k.shared.lifted {
		if at := k.shared.lifted[i].at; next.IsZero() || at.Before(next) {
			next = at
		}
	}
	return next
}

// storeKeys stores pauses of keys for a while, makes the events of lifted pauses due, and returns of how
// many pauses.
func (p *pauses) storeKeys(ctx context.Context) (stored int, err error) {
	if at := p.keys.nextShared(); at.IsZero() || at.After(p.clock.Now()) {
		return 0, nil
	}
	if err := p.lock(ctx); err != nil {
		return 0, err
	}
	defer p.unlock()
	k := p.keys
	for _, l := range k.takeLifted() {
		if failed := makeDue(ctx, p.store, p.db, l.key, l.until, p.clock.Now()); failed != nil {
			k.liftLater(l)
			p.notDue.Add(1, logKeyError, failed.Error())
			continue
		}
		stored++
	}
	pauses := k.toStore()
	if len(pauses) == 0 {
		return stored, nil
	}
	now, failed := p.store.Now(ctx, p.db)
	ahead := now.Sub(p.clock.Now())
	for began := time.Now(); failed == nil && len(pauses) > 0 && time.Since(began) < storingKeys; pauses = pauses[1:] {
		pause := pauses[0]
		if ends := pause.Until; ahead.Abs() >= probeTime/2 {
			pause.Until = dueTime(ends, ahead)
		}
		if failed = p.store.Pause(ctx, p.db, pause); failed == nil {
			stored++
			k.isStored(pauses[0])
		}
	}
	if failed != nil {
		k.storeLater(p.clock.Now().Add(pausePace))
	}
	return stored, failed
}

// toStore lists the pauses that are to be stored.
func (k *keys) toStore() (list []Pause) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.clock.Now()
	for key, pause := range k.shared.unstored {
		if pause.Until.After(now) {
			list = append(list, pause)
		} else {
			delete(k.shared.unstored, key)
		}
	}
	return list
}

// isStored notes that a pause is stored, unless there is a later pause of the key meanwhile.
func (k *keys) isStored(pause Pause) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if key := pause.key(); k.shared.unstored[key] == pause {
		delete(k.shared.unstored, key)
		k.shared.stored[key] = pause.Until
	}
}

func (k *keys) storeLater(at time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.shared.storeAt = at
}

// takeLifted takes the lifted keys whose time has come. Each has a second time.
func (k *keys) takeLifted() (list []liftedKey) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.clock.Now()
	rest := k.shared.lifted[:0]
	for _, l := range k.shared.lifted {
		if l.at.After(now) {
			rest = append(rest, l)
			continue
		}
		list = append(list, l)
		if !l.last {
			l.last, l.at = true, now.Add(pausePace)
			rest = append(rest, l)
		}
	}
	k.shared.lifted = rest
	return list
}

// liftLater notes a lifted key again whose events could not be made due. After a failure at the first time
// the second time follows anyway.
func (k *keys) liftLater(l liftedKey) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if now := k.clock.Now(); l.last && l.until.After(now) {
		l.at = now.Add(pausePace)
		k.shared.lifted = append(k.shared.lifted, l)
	}
}

// errLocked is why events could not be made due.
var errLocked = errors.New("open transactions have locked some of the events")

// makeDue makes the events due that wait for the end of a pause, if the store can find the events by
// their key. It does not wait for events that open transactions have locked.
func makeDue(ctx context.Context, store Store, db DB, key keyOfKind, until, now time.Time) error {
	locked := false
	for _, due := range []time.Time{until, dueTime(until, probeTime)} {
		which := Waiting{Kind: key.kind, AggregateID: key.id, DueAfter: due, DueBefore: due.Add(time.Microsecond)}
		n, err := store.TakeBack(ctx, db, which, Change{AvailableAt: storedTime(now)})
		if noIndex := (*FieldError)(nil); errors.As(err, &noIndex) {
			return nil // the events come at the end of the pause
		}
		if err != nil {
			return err
		}
		locked = locked || n.InHand > 0
	}
	if locked {
		return errLocked
	}
	return nil
}

// resumeKey ends the pause of a key.
func (p *pauses) resumeKey(ctx context.Context, kind EventKind, aggregateID string) error {
	if err := p.lock(ctx); err != nil {
		return err
	}
	defer p.unlock()
	if p.keys != nil {
		p.keys.forget(keyOfKind{kind, aggregateID})
	}
	return p.store.Resume(ctx, p.db, kind, aggregateID)
}

// forget ends the pause of a key in this process.
func (k *keys) forget(key keyOfKind) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.shared.unstored, key)
	delete(k.shared.stored, key)
	k.unpause(key)
}
