package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/outboxkit/outbox-go/internal/sqlerr"
	"github.com/outboxkit/outbox-go/outbox/internal/groupcommit"
	"github.com/outboxkit/outbox-go/outbox/internal/logburst"
	"github.com/outboxkit/outbox-go/outbox/internal/patience"
)

// completer stores outcomes, in batches that a [groupcommit.Committer] makes. Until an outcome
// is stored, or the completer is closed, the event stays in the tracker, so nothing delivers
// the event again. An outcome that the database refuses is stored without the text of the failure,
// or kept apart.
type completer struct {
	db      DB
	store   Store
	track   *tracker
	leases  *tableLeases
	metrics Metrics
	counts  *counts // metrics, unless nothing is reported
	clock   Clock
	byKey   bool // as in [OrderedByKey]
	engine  engine

	commit *groupcommit.Committer[*delivery, Outcome]

	deaths                                           logburst.ByCause
	leaseLost, rowless, unstored, textless, refusals logburst.Burst

	// pending are the outcomes that are not stored, from the listener's return on.
	pending atomic.Int64
}

// engine is a dispatcher, as the completer knows it.
type engine interface {
	tellDepths()
	dueAt(t time.Time)
	wakePoller()
}

func newCompleter(d *dispatcher, db DB, store Store) *completer {
	own, _ := d.metrics.(*counts)
	c := &completer{
		db: db, store: store, track: d.track, leases: d.leases, metrics: d.metrics, counts: own, clock: d.clock,
		byKey: d.byKey, engine: d,
		deaths:    logburst.ByCause{Log: d.log, Level: slog.LevelError, Message: "outbox: event is dead", Single: causeLines},
		leaseLost: logburst.Burst{Log: d.log, Level: slog.LevelWarn, Message: "outbox: outcomes were refused; the leases of their events are lost"},
		rowless:   logburst.Burst{Log: d.log, Level: slog.LevelWarn, Message: "outbox: outcomes found no row: it was deleted, or its transaction wrote to another table of this name"},
		unstored: logburst.Burst{
			Log: d.log, Level: slog.LevelError, Message: "outbox: outcomes could not be stored; trying again",
			Ended: "outbox: outcomes are stored again",
		},
		textless: logburst.Burst{Log: d.log, Level: slog.LevelWarn, Message: "outbox: outcomes are stored without the texts of failures, which the database refuses"},
		refusals: logburst.Burst{Log: d.log, Level: slog.LevelError, Message: "outbox: outcomes that the database refuses are tried again ever more rarely"},
	}
	return c
}

// start lets outcomes be stored in batches. [completer.storeOne] needs no start.
func (c *completer) start(opts DispatchOptions, inOrder bool) {
	c.commit = groupcommit.Start(groupcommit.Config[*delivery, Outcome]{
		Interval: opts.MarkInterval,
		OneByOne: opts.Workers == 1 || c.byKey,
		InOrder:  inOrder,
		Kinds:    []Outcome{OutcomeDone, OutcomeDelete, OutcomeSplit, OutcomeDeferred, OutcomeRetry, OutcomeDead},
		Kind:     func(dl *delivery) Outcome { return dl.outcome },
	}, c)
}

// Store implements [groupcommit.Target].
func (c *completer) Store(within groupcommit.Within, outcome Outcome, group []*delivery) (again, refused []*delivery, err error) {
	defer c.engine.tellDepths()
	group, again, refused = c.inTurn(group)
	if len(group) == 0 {
		return again, refused, nil
	}
	left, apart, err := c.markAll(within, outcome, group)
	return append(again, left...), append(refused, apart...), err
}

// inTurn parts outcomes into outcomes that may be stored now, and outcomes that have to wait for
// others. An outcome behind a refused outcome waits with the refused outcomes.
func (c *completer) inTurn(group []*delivery) (now, later, refused []*delivery) {
	now, waiting := c.track.inTurn(group)
	for _, d := range waiting {
		if d.behindStuck() {
			refused = append(refused, c.track.stick(d))
		} else {
			later = append(later, d)
		}
	}
	return now, later, refused
}

// Ping implements [groupcommit.Target].
func (c *completer) Ping(ctx context.Context) error {
	_, err := c.store.Now(ctx, c.db)
	return err
}

// Failed implements [groupcommit.Target].
func (c *completer) Failed(outcome Outcome, n int, err error) {
	c.unstored.Add(n, logKeyOutcome, outcome.String(), logKeyError, err.Error())
}

// Recovered implements [groupcommit.Target].
func (c *completer) Recovered() { c.unstored.End() }

// mark stores outcomes of one kind in a statement. lost are the deliveries whose rows were left
// alone, because their leases are lost. again are the deliveries whose lease changed meanwhile,
// because this node claimed their rows again: these are to be stored under the new lease.
// again includes the deliveries whose rows the database skipped.
func (c *completer) mark(ctx context.Context, outcome Outcome, group []*delivery) (lost, again []*delivery, err error) {
	marks := c.track.storing(group)
	outcome = c.storedAs(outcome)
	left, err := c.write(ctx, outcome, group, marks)
	if err != nil {
		for _, d := range group {
			d.repeated = true
		}
		return nil, nil, err
	}
	again, back := c.track.settle(outcome, group, marks, left)
	c.leases.releaser.Release(back)
	for _, d := range group {
		if row, refused := left[d.id()]; refused && !slices.Contains(again, d) && (!d.repeated || !row.shows(outcome)) {
			d.rowless = !row.Exists
			lost = append(lost, d)
		}
	}
	return lost, again, nil
}

func (c *completer) write(ctx context.Context, outcome Outcome, group []*delivery, marks []Mark) (left map[string]RowState, err error) {
	if outcome == OutcomeSplit {
		return c.split(ctx, group, marks)
	}
	return c.store.Mark(ctx, c.db, outcome, marks)
}

// split ends events of which some listeners are not done: first the events whose rows are kept, then
// the events whose rows are deleted. If the second part fails, all are stored again, and the first
// part shows that it is stored.
func (c *completer) split(ctx context.Context, group []*delivery, marks []Mark) (left map[string]RowState, err error) {
	splits := map[Outcome][]Split{}
	for i, s := range c.splits(group, marks) {
		splits[group[i].ended] = append(splits[group[i].ended], s)
	}
	for _, ended := range []Outcome{OutcomeDone, OutcomeDelete} {
		if len(splits[ended]) == 0 {
			continue
		}
		some, err := c.store.Split(ctx, c.db, ended, splits[ended])
		if err != nil {
			return nil, err
		}
		if left == nil {
			left = some
		} else {
			maps.Copy(left, some)
		}
	}
	return left, nil
}

// splits are the ends of events with the rows of their listeners.
func (c *completer) splits(ds []*delivery, marks []Mark) []Split {
	splits := make([]Split, len(ds))
	for i, dl := range ds {
		splits[i].Mark = marks[i]
		for _, row := range dl.rows() {
			splits[i].Rows = append(splits[i].Rows, ListenerRow{Envelope: *row.env, Outcome: c.storedAs(row.outcome), Mark: row.mark()})
		}
	}
	return splits
}

// storedAs is the outcome that the store gets. Under [OrderedByKey] a deferred event
// holds back the key, as a RETRY row does.
func (c *completer) storedAs(outcome Outcome) Outcome {
	if c.byKey && outcome == OutcomeDeferred {
		return OutcomeRetry
	}
	return outcome
}

// storeOne stores an outcome at once, for synchronous delivery.
func (c *completer) storeOne(ctx context.Context, d *delivery) error {
	switch {
	case d.outcome == OutcomeReleased:
		return nil
	case d.completed:
		c.observe(d, c.clock.Now())
		return nil
	}
	group := []*delivery{d}
	mark := func() error {
		ctx, cancel := context.WithTimeout(ctx, patience.Longest)
		defer cancel()
		_, _, err := c.mark(ctx, d.outcome, group)
		return err
	}
	err := mark()
	for sqlerr.IsRefused(err) && (escapeTexts(group) || dropTexts(group)) {
		err = mark()
	}
	if err == nil && d.skipped {
		err = errSkipped
	}
	if err != nil {
		return fmt.Errorf("outbox: storing the outcome %s of event %s: %w", d.outcome, d.id(), err)
	}
	c.observe(d, c.clock.Now())
	return nil
}

// close stores the outcomes that are there, for at most the given time, and returns how many
// outcomes it could not store.
func (c *completer) close(limit time.Duration) (lost int) {
	c.commit.Close(limit)
	c.leaseLost.Flush()
	c.rowless.Flush()
	c.unstored.Flush()
	c.textless.Flush()
	c.refusals.Flush()
	return int(c.pending.Load())
}

// The database may refuse an outcome: its character set lacks a character of the text, the
// text is longer than a column that somebody narrowed, a check or a trigger is against it, or
// a trigger skips the update without an error.
// The outcome is then stored with the text in ASCII, or without the text. An outcome that is
// still refused is kept apart. The outcome stays in the tracker, so that this process does not
// deliver the event again. The pause between tries grows, because somebody may drop the trigger.

// markAll stores outcomes of a kind. The outcomes of a statement that the database refused
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
	case n > 1: // find the outcomes that are refused
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

// errSkipped says that a mark changed nothing, although the row is there and the lease is
// not lost.
var errSkipped = errors.New("the statement left the row as it is: a trigger, a rule or a policy of the table skips the update")

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

// behindStuck reports whether an earlier event of the run has an outcome that is refused.
func (d *delivery) behindStuck() bool {
	for before := d.before; before != nil; before = before.before {
		if before.stuck {
			return true
		}
	}
	return false
}

// escapeTexts writes the texts of outcomes in ASCII; false if they are in ASCII already.
func escapeTexts(group []*delivery) (changed bool) {
	for _, d := range group {
		if text := asciiText(d.reason); text != d.reason {
			d.reason, changed = text, true
		}
		changed = escapeTexts(d.rows()) || changed
	}
	return changed
}

// dropTexts removes the texts of outcomes; false if there are no texts.
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

// stored reports the outcomes of a statement. lost are the outcomes that changed no row, and
// again the outcomes that are to be stored again, each in the order of the group.
func (c *completer) stored(group, lost, again []*delivery) {
	c.pending.Add(int64(len(again) - len(group)))
	if len(lost) > 0 {
		c.metrics.LeaseLost(len(lost))
		c.logLost(lost)
	}
	now := c.clock.Now()
	for _, d := range group {
		switch {
		case len(lost) > 0 && lost[0] == d:
			lost = lost[1:]
		case len(again) > 0 && again[0] == d:
			again = again[1:]
		default:
			c.observe(d, now)
		}
	}
}

// logLost reports outcomes that changed no row.
func (c *completer) logLost(lost []*delivery) {
	rowless, id := 0, ""
	for _, d := range lost {
		if d.rowless {
			rowless, id = rowless+1, d.id()
		}
	}
	if rowless > 0 {
		c.rowless.Add(rowless, logKeyEventID, id, logKeyOwner, c.leases.names.Owner)
	}
	if n := len(lost) - rowless; n > 0 {
		c.leaseLost.Add(n, logKeyOwner, c.leases.names.Owner, logKeyError, ErrLeaseLost.Error())
	}
}

func (c *completer) observe(d *delivery, now time.Time) {
	m, kind, kinds, place := c.metrics, d.kind(), c.counts.ofKinds(), atomic.LoadInt32(&d.place)
	if c.byKey {
		c.engine.wakePoller() // for the rest of the key
	}
	if d.expired {
		m.Expired(kind)
	}
	switch d.outcome {
	case OutcomeDone, OutcomeDelete:
		if d.expired {
			break
		}
		m.Delivered(kind, now.Sub(d.env.OccurredAt))
		kinds.count(place, false)
	case OutcomeRetry:
		m.Failed(kind)
		kinds.count(place, true)
		c.engine.dueAt(d.next)
	case OutcomeDeferred:
		m.Deferred(kind)
		c.engine.dueAt(d.next)
	case OutcomeDead:
		m.Died(kind)
		kinds.count(place, true)
		c.deaths.Add(causeOfFailure(d), deliveryAttrs(d, max(d.env.Attempts, d.attempts))...)
	case OutcomeSplit:
		if d.answers.done > 0 {
			m.Delivered(kind, now.Sub(d.env.OccurredAt))
			kinds.count(place, false)
		}
		for _, row := range d.rows() {
			atomic.StoreInt32(&row.place, place)
			c.observe(row, now)
		}
	case OutcomeReleased:
	}
}
