package outbox

import (
	"errors"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// The database may refuse an outcome: its character set lacks a character of the text, the
// text is longer than a column that somebody narrowed, a check or a trigger is against it, or
// a trigger skips the update without an error.
// The outcome is then stored with its text in ASCII, or without its text. An outcome that is
// still refused is kept apart. The outcome stays in the tracker, so that this process does not
// deliver the event again. The pause between tries grows, because somebody may drop the trigger.

// storeRefused stores what it can of a group that the database refused, and keeps apart
// what it refuses in any form.
func (c *completer) storeRefused(outcome Outcome, group []*delivery, limit time.Duration, err error) {
	switch n := len(group); {
	case escapeTexts(group):
		c.storePart(outcome, group, limit)
	case n > 1: // find those that are refused
		c.storePart(outcome, group[:n/2], limit)
		c.storePart(outcome, group[n/2:], limit)
	case dropTexts(group):
		c.textless.Add(1, logKeyEventID, group[0].id(), logKeyError, err.Error())
		c.storePart(outcome, group, limit)
	default:
		c.refusals.Add(1, logKeyEventID, group[0].id(), logKeyOutcome, outcome.String(), logKeyError, err.Error())
		c.stick(group[0])
	}
}

// errSkipped says that a mark changed nothing, although its row is there and its lease is
// not lost.
var errSkipped = errors.New("the statement left the row as it is: a trigger, a rule or a policy of the table skips the update")

// skipped reports whether a row that the mark left alone is one that it should have changed.
func (s RowState) skipped(m Mark) bool {
	return s.Exists && (s.Status == StatusNew || s.Status == StatusRetry) && (m.Lease == "" || s.Lease == m.Lease)
}

// stickSkipped keeps apart the outcomes whose rows the database skipped, as if it had
// refused them, and returns the others.
func (c *completer) stickSkipped(outcome Outcome, group []*delivery) (others []*delivery) {
	for _, d := range group {
		if !d.skipped {
			others = append(others, d)
			continue
		}
		c.refusals.Add(1, logKeyEventID, d.id(), logKeyOutcome, outcome.String(), logKeyError, errSkipped.Error())
		c.stick(d)
	}
	return others
}

// storePart stores a part of a group, or sets it aside. In [Ordered] later outcomes wait
// for it, as they do in tryAgain.
func (c *completer) storePart(outcome Outcome, part []*delivery, limit time.Duration) {
	if part = c.inTurn(part); len(part) == 0 {
		return
	}
	began := time.Now()
	if err := c.storeGroup(outcome, part, limit); err != nil {
		f := c.noteFailure(outcome, part, began, err)
		if c.d.inOrder {
			c.tryAgain(f)
		} else {
			c.setAside(part)
		}
	}
}

// stick keeps an outcome apart, without the payload of its event where that is possible.
// When there are too many, it is set aside, and holds up the rest.
func (c *completer) stick(d *delivery) {
	if len(c.stuck) >= completerStuck {
		c.setAside([]*delivery{d})
		return
	}
	c.stuckPause = max(c.stuckPause, stuckMinPause)
	c.stuck = append(c.stuck, c.d.track.stick(d))
}

// retryStuck tries some of the outcomes that were refused, and goes on while they are
// stored.
func (c *completer) retryStuck() {
	for {
		n := len(c.stuck)
		part := c.stuck[:min(n, completerPart)]
		c.stuck = append([]*delivery(nil), c.stuck[len(part):]...)
		byOutcome(part, func(outcome Outcome, group []*delivery) { c.storePart(outcome, group, c.patience.Now()) })
		switch stored := n - len(c.stuck); {
		case len(c.stuck) == 0:
			c.stuckPause = 0
			return
		case stored == 0:
			c.stuckPause = min(2*c.stuckPause, stuckMaxPause)
			return
		case stored < len(part):
			c.stuckPause = stuckMinPause
			return
		}
	}
}

// stick marks a delivery as one whose outcome is refused. It returns the delivery that
// takes its place, which has no payload, unless that is still needed.
func (t *tracker) stick(d *delivery) *delivery {
	t.mu.Lock()
	defer t.mu.Unlock()
	d.stuck = true
	if d.answers != nil || d.before != nil || d.behind != nil || t.events[d.id()] != d {
		return d
	}
	slim, env := *d, *d.env
	env.Payload, env.Headers = Payload{}, nil
	slim.env, slim.ctx = &env, deliveryContext{}
	t.events[d.id()] = &slim
	return &slim
}

// behindStuck reports whether an event before it in its run has an outcome that is refused.
func (d *delivery) behindStuck() bool {
	for before := d.before; before != nil; before = before.before {
		if before.stuck {
			return true
		}
	}
	return false
}

// escapeTexts writes the texts of outcomes in ASCII; false if they are.
func escapeTexts(group []*delivery) (changed bool) {
	for _, d := range group {
		if text := asciiText(d.reason); text != d.reason {
			d.reason, changed = text, true
		}
		changed = escapeTexts(d.rows()) || changed
	}
	return changed
}

// dropTexts removes the texts of outcomes; false if there are none.
func dropTexts(group []*delivery) (changed bool) {
	for _, d := range group {
		changed = changed || d.reason != ""
		d.reason = ""
		changed = dropTexts(d.rows()) || changed
	}
	return changed
}

// asciiText is a text with Go's escapes in place of the characters that ASCII lacks.
func asciiText(s string) string {
	if strings.IndexFunc(s, func(r rune) bool { return r >= utf8.RuneSelf }) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if r < utf8.RuneSelf {
			b.WriteByte(byte(r))
			continue
		}
		escaped := strconv.QuoteRuneToASCII(r)
		b.WriteString(escaped[1 : len(escaped)-1])
	}
	return errorText(b.String())
}
