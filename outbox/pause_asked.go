package outbox

import (
	"context"
	"errors"
	"strings"
	"time"
	"unicode"

	"github.com/outboxkit/outbox-go/outbox/internal/logburst"
)

// An automatic pause: a listener returns [PauseFor], or the deliveries of a kind that has a [Breaker]
// fail one after the other. The pause counts in this process at once, so that no worker begins another
// delivery of the kind. The poller then stores the pause for the other
// processes. When the pause has ended, the first delivery of the kind in each process is a probe: no
// other delivery of the kind begins until the probe has an outcome. If the receiver is still down, the
// probe pauses the kind again.

// ask pauses a kind because a listener asks for it.
func (p *pauses) ask(kind EventKind, d time.Duration, reason string) {
	p.add(kind, d, reason, &p.asked)
}

// breakOff pauses a kind because of failures in a row.
func (p *pauses) breakOff(kind EventKind, d time.Duration, reason string) {
	p.add(kind, d, reason, &p.broken)
}

// add makes an automatic pause. The pause of an operator stays as it is, and so does an automatic pause that
// ends less than [pausePace] earlier: of the many deliveries that fail at once, the first makes the pause.
func (p *pauses) add(kind EventKind, d time.Duration, reason string, lines *logburst.ByCause) {
	now := p.clock.Now()
	ends := now.Add(d)
	if old, is := p.now.Load().kinds[kind]; is && old.outlasts(ends) {
		return
	}
	p.change(func(was, next *pauseSet) {
		if old, is := was.kinds[kind]; is && old.outlasts(ends) {
			return
		}
		delete(next.ended, kind)
		asked := paused{ends: ends, unstored: true, Pause: Pause{
			Kind: kind, Since: storedTime(now), Until: dueTime(now, d), Reason: singleLine(reason, MaxPauseReason), By: singleLine(p.owner, MaxPauseBy), Automatic: true,
		}}
		next.kinds[kind] = asked
		lines.Add(kind.String(), asked.attrs()...)
	})
}

// outlasts reports whether a pause leaves nothing to do for a listener that asks for a pause until a
// time.
func (p paused) outlasts(ends time.Time) bool {
	return !p.probing && (!p.Automatic || ends.Sub(p.ends) < pausePace)
}

// singleLine makes a text a single line of at most n characters.
func singleLine(text string, n int) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
	for i := range text {
		if n--; n < 0 {
			return text[:i]
		}
	}
	return text
}

// storeAsked stores the pauses that listeners of this process asked for, of kinds and of keys, and returns
// how many pauses it stored.
func (p *pauses) storeAsked(ctx context.Context) (stored int, err error) {
	stored, err = p.storeKinds(ctx)
	if p.keys != nil {
		n, failed := p.storeKeys(ctx)
		stored, err = stored+n, errors.Join(err, failed)
	}
	return stored, err
}

func (p *pauses) storeKinds(ctx context.Context) (stored int, err error) {
	if at := p.tryAt.Load(); !p.hasUnstored() || at != nil && p.clock.Now().Before(*at) {
		return 0, nil
	}
	if err := p.lock(ctx); err != nil {
		return 0, err
	}
	defer p.unlock()
	var errs []error
	for _, asked := range p.now.Load().kinds {
		if !asked.unstored {
			continue
		}
		err := p.storeOne(ctx, asked)
		errs = append(errs, err)
		if err == nil {
			stored++
		}
	}
	p.tryAt.Store(nil)
	if err = errors.Join(errs...); err != nil {
		again := p.clock.Now().Add(pausePace)
		p.tryAt.Store(&again)
	}
	return stored, err
}

func (p *pauses) hasUnstored() bool {
	for _, pause := range p.now.Load().kinds {
		if pause.unstored {
			return true
		}
	}
	return false
}

// storeOne stores a pause. The end is as far from the time of the database's clock as it is from the
// time of this process's clock.
func (p *pauses) storeOne(ctx context.Context, asked paused) error {
	now, err := p.store.Now(ctx, p.db)
	if err != nil {
		return err
	}
	pause := asked.Pause
	pause.Until = dueTime(now, asked.ends.Sub(p.clock.Now()))
	if err := p.store.Pause(ctx, p.db, pause); err != nil {
		return err
	}
	p.change(func(was, next *pauseSet) {
		if was.kinds[asked.Kind] == asked { // no listener asked for more meanwhile
			asked.Until, asked.unstored = pause.Until, false
			next.kinds[asked.Kind] = asked
		}
	})
	return nil
}

// resume ends the pause of a kind, and forgets the pause that a listener of this process asked for, and
// the probe after it. A pause that is being stored must not be stored after it was ended.
func (p *pauses) resume(ctx context.Context, kind EventKind) error {
	if err := p.lock(ctx); err != nil {
		return err
	}
	defer p.unlock()
	if err := p.store.Resume(ctx, p.db, kind, ""); err != nil {
		return err
	}
	p.change(func(_, next *pauseSet) {
		delete(next.kinds, kind)
		delete(next.ended, kind)
	})
	return nil
}

// begin reports whether a delivery may begin now, and makes the delivery a probe if the pause of the
// kind ended. A delivery that does not call its listener is no probe, because its end says nothing of
// the receiver.
func (p *pauses) begin(dl *delivery, callsListener func(*delivery) bool) bool {
	kind := kindOf(dl.env)
	set := p.now.Load()
	_, held := set.kinds[kind]
	if _, ended := set.ended[kind]; !ended || held || !callsListener(dl) {
		return !held
	}
	p.change(func(was, next *pauseSet) {
		_, held := was.kinds[kind]
		pause, ended := was.ended[kind]
		if held || !ended {
			return
		}
		pause.probing, pause.unstored = true, false
		next.kinds[kind], dl.probe = pause, true
		delete(next.ended, kind)
	})
	return dl.probe || !p.hasKind(kind)
}

// awaitProbe reports whether a kind is paused, or the next delivery is a probe.
func (p *pauses) awaitProbe(kind EventKind) bool {
	set := p.now.Load()
	_, held := set.kinds[kind]
	_, ended := set.ended[kind]
	return held || ended
}

// probed ends a probe: the deliveries of the kind go on, unless the kind was paused meanwhile. If the
// listener was not called after all, the next delivery is a probe.
func (p *pauses) probed(dl *delivery) {
	dl.probe = false
	kind := kindOf(dl.env)
	p.change(func(_, next *pauseSet) {
		pause := next.kinds[kind]
		if !pause.probing {
			return
		}
		delete(next.kinds, kind)
		if dl.expired || dl.waiting != nil || dl.outcome == OutcomeReleased {
			pause.probing = false
			next.ended[kind] = pause
		}
	})
}

// flush writes the rest of the log lines.
func (p *pauses) flush() {
	p.asked.Flush()
	p.broken.Flush()
	p.unstored.Flush()
	p.notDue.Flush()
}
