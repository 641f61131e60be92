package outbox

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/outboxkit/outbox-go/internal/sqlerr"
	"github.com/outboxkit/outbox-go/outbox/internal/groupcommit"
)

// The database may refuse an outcome: its character set lacks a character of the text, the
// text is longer than a column that somebody narrowed, a check or a trigger is against it, or
// a trigger skips the update without an error.
// The outcome is then stored with its text in ASCII, or without its text. An outcome that is
// still refused is kept apart. The outcome stays in the tracker, so that this process does not
// deliver the event again. The pause between tries grows, because somebody may drop the trigger.

// markAll stores outcomes of one kind. The outcomes of a statement that the database refused
// are stored in ASCII, then in halves, and then without their texts. again are the outcomes
// that are to be tried again soon: with err all that are not stored, else the outcomes whose rows
// this node claimed again meanwhile. refused are the outcomes that the database refuses in any
// form.
func (c *completer) markAll(within groupcommit.Within, outcome Outcome, group []*delivery) (again, refused []*delivery, err error) {
	var lost []*delivery
	err = within(func(ctx context.Context) (err error) {
		lost, again, err = c.mark(ctx, outcome, group)
		return err
	})
	switch n := len(group); {
	case err == nil:
		c.stored(group, lost, again)
		again, refused = c.partSkipped(outcome, again)
		return again, refused, nil
	case !sqlerr.IsRefused(err):
		return group, nil, err
	case escapeTexts(group):
		return c.markAll(within, outcome, group)
	case n > 1: // find those that are refused
		again, refused, err = c.Store(within, outcome, group[:n/2])
		if err != nil {
			return append(again, group[n/2:]...), refused, err
		}
		more, apart, err := c.Store(within, outcome, group[n/2:])
		return append(again, more...), append(refused, apart...), err
	case dropTexts(group):
		c.textless.Add(1, logKeyEventID, group[0].id(), logKeyError, err.Error())
		return c.markAll(within, outcome, group)
	default:
		c.refusals.Add(1, logKeyEventID, group[0].id(), logKeyOutcome, outcome.String(), logKeyError, err.Error())
		return nil, []*delivery{c.track.stick(group[0])}, nil
	}
}

// errSkipped says that a mark changed nothing, although its row is there and its lease is
// not lost.
var errSkipped = errors.New("the statement left the row as it is: a trigger, a rule or a policy of the table skips the update")

// skipped reports whether a row that the mark left alone is one that it should have changed.
func (s RowState) skipped(m Mark) bool {
	return s.Exists && (s.Status == StatusNew || s.Status == StatusRetry) && (m.Lease == "" || s.Lease == m.Lease)
}

// partSkipped returns apart the outcomes whose rows the database skipped, as if it had refused
// them.
func (c *completer) partSkipped(outcome Outcome, group []*delivery) (others, skipped []*delivery) {
	for _, d := range group {
		if !d.skipped {
			others = append(others, d)
			continue
		}
		c.refusals.Add(1, logKeyEventID, d.id(), logKeyOutcome, outcome.String(), logKeyError, errSkipped.Error())
		skipped = append(skipped, c.track.stick(d))
	}
	return others, skipped
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
