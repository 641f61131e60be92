package outbox

import (
	"context"
	"slices"
	"time"

	"github.com/outboxkit/outbox-go/internal/sqlerr"
	"github.com/outboxkit/outbox-go/outbox/internal/patience"
	"github.com/outboxkit/outbox-go/outbox/internal/wait"
)

// outcomes are the kinds in the order in which they are stored.
var outcomes = [...]Outcome{OutcomeDone, OutcomeDelete, OutcomeSplit, OutcomeDeferred, OutcomeRetry, OutcomeDead}

// persist stores a batch, one statement for each kind of outcome in it.
func (c *completer) persist(batch []*delivery) {
	byOutcome(batch, c.persistGroup)
	c.d.tellDepths()
}

func byOutcome(batch []*delivery, store func(Outcome, []*delivery)) {
	group := make([]*delivery, 0, len(batch))
	for _, outcome := range outcomes {
		group = group[:0]
		for _, d := range batch {
			if d.outcome == outcome {
				group = append(group, d)
			}
		}
		if len(group) > 0 {
			store(outcome, group)
		}
	}
}

// persistGroup stores one kind of outcome, at once or by tryAgain.
func (c *completer) persistGroup(outcome Outcome, group []*delivery) {
	if group = c.inTurn(group); len(group) == 0 {
		return
	}
	began := time.Now()
	if err := c.storeGroup(outcome, group, c.patience.Now()); err != nil {
		c.tryAgain(c.noteFailure(outcome, group, began, err))
	}
}

// failure is what a statement did not store, and how long it took.
type failure struct {
	outcome Outcome
	group   []*delivery
	took    time.Duration
	refused bool // by the database
}

// noteFailure logs that a statement failed, and says what is to be tried again.
func (c *completer) noteFailure(outcome Outcome, group []*delivery, began time.Time, err error) failure {
	c.unstored.Add(len(group), logKeyOutcome, outcome.String(), logKeyError, err.Error())
	return failure{outcome: outcome, group: group, took: time.Since(began)}
}

// takeOver stores what assist could not store.
func (c *completer) takeOver(f failure) {
	if f.refused {
		c.persistGroup(f.outcome, f.group)
	} else {
		c.tryAgain(f)
	}
}

// tryAgain tries a few times what failed, or once more in parts if that took long, then
// sets aside what cannot be stored. When too much is aside already it goes on trying, and
// in [Ordered] in any case.
func (c *completer) tryAgain(f failure) {
	pause := completerMinPause
	for try := 1; ; try++ {
		if !c.waitOutSilence(f.took) {
			// In order, later outcomes wait for this one.
			inOrder := c.d.inOrder && c.ctx.Err() == nil
			if slow := f.took >= patience.Min/2; !inOrder && (slow || try >= completerTries) {
				f.group = c.persistParts(f.outcome, f.group)
				if c.ctx.Err() != nil || len(c.aside)+len(f.group) <= completerAside {
					c.setAside(f.group)
					return
				}
				c.retryAside()
			}
			wait.Sleep(c.ctx, pause)
			pause = min(2*pause, completerMaxPause)
		}
		began := time.Now()
		err := c.storeGroup(f.outcome, f.group, c.patience.Now())
		if err == nil {
			return
		}
		f = c.noteFailure(f.outcome, f.group, began, err)
	}
}

// storeGroup stores outcomes in one statement. What the answer took says how much
// patience the next one needs.
func (c *completer) storeGroup(outcome Outcome, group []*delivery, limit time.Duration) error {
	began := time.Now()
	again, err := c.storeOnce(outcome, group, limit)
	if sqlerr.IsRefused(err) {
		c.storeRefused(outcome, group, limit, err)
		return nil
	}
	if err != nil {
		return err
	}
	c.patience.Took(time.Since(began), nil)
	c.setAside(c.stickSkipped(outcome, again))
	if len(c.aside) == 0 {
		c.unstored.End()
	}
	return nil
}

// storeOnce stores outcomes in one statement. It returns those whose rows this node
// claimed again meanwhile: they are to be stored under the new lease. Those that the
// database skipped are among them.
func (c *completer) storeOnce(outcome Outcome, group []*delivery, limit time.Duration) (again []*delivery, err error) {
	lost, again, err := c.mark(c.ctx, outcome, group, limit)
	if err != nil {
		return nil, err
	}
	if len(again) > 0 {
		group = slices.DeleteFunc(slices.Clone(group), func(d *delivery) bool { return slices.Contains(again, d) })
	}
	c.stored(group, lost)
	return again, nil
}

// persistParts stores what it can of a group that failed as a whole, and returns
// the rest. When nothing of it can be stored it is rather the database that is
// slow, and the next statements get more time.
func (c *completer) persistParts(outcome Outcome, group []*delivery) []*delivery {
	if len(group) == 1 {
		return slices.Clone(group)
	}
	size, failed := completerPart, 0
	if len(group) <= size {
		size = 1
	}
	left := c.persistEach(outcome, group, size, &failed)
	if len(left) == len(group) {
		c.patience.Grow()
	}
	return left
}

// persistEach stores a group in parts, those that fail one by one, and returns
// what is left: the outcomes that failed, and behind the second of them what was
// not tried. That comes first another time.
func (c *completer) persistEach(outcome Outcome, group []*delivery, size int, failed *int) []*delivery {
	var left []*delivery
	for len(group) > 0 && *failed < 2 {
		part := group[:min(size, len(group))]
		group = group[len(part):]
		part, later := c.d.track.inTurn(part)
		if left = append(left, later...); len(part) == 0 {
			continue
		}
		switch err := c.storeGroup(outcome, part, c.patience.Now()/2); {
		case err == nil:
		case len(part) == 1:
			*failed++
			left = append(left, part[0])
		default:
			left = append(left, c.persistEach(outcome, part, 1, failed)...)
		}
	}
	return append(slices.Clone(group), left...)
}

// waitOutSilence asks a database that took long to fail for its clock, until it
// answers; false when it does at once, for then it is rather a row that is locked,
// or the database is slow. So outcomes are stored soon after a silent database is
// back, however long it was away.
func (c *completer) waitOutSilence(took time.Duration) (silent bool) {
	if took < patience.Min/4 {
		return false
	}
	for range probeTries {
		ctx, cancel := context.WithTimeout(c.ctx, probeTimeout)
		_, err := c.store.Now(ctx, c.db)
		cancel()
		if err == nil || c.ctx.Err() != nil {
			break
		}
		silent = true
		wait.Sleep(c.ctx, completerMinPause)
	}
	return silent
}

func (c *completer) setAside(group []*delivery) {
	if len(group) == 0 {
		return
	}
	c.pause = max(c.pause, completerMinPause)
	c.aside = append(c.aside, group...)
}

// retryAside tries the outcomes that were set aside. The others wait meanwhile,
// so it takes little time, and comes again the later the more it took.
func (c *completer) retryAside() {
	if len(c.aside) == 0 {
		return
	}
	began, again := time.Now(), c.aside
	c.aside, c.pause = nil, min(2*c.pause, completerMaxPause)
	byOutcome(again, func(outcome Outcome, group []*delivery) {
		if group = c.inTurn(group); len(group) == 0 {
			return
		}
		tried := time.Now()
		err := c.storeGroup(outcome, group, c.asidePatience(len(again)))
		if err == nil {
			return
		}
		if c.waitOutSilence(c.noteFailure(outcome, group, tried, err).took) {
			c.setAside(group)
			began, c.pause = time.Now(), completerMinPause
			return
		}
		c.setAside(c.persistParts(outcome, group))
	})
	c.pause = max(c.pause, min(4*time.Since(began), completerSlowest))
	if len(c.aside) == 0 {
		c.pause = 0
	}
	c.d.tellDepths()
}

// inTurn sets aside the outcomes that have to wait for others, and returns the rest.
func (c *completer) inTurn(group []*delivery) []*delivery {
	now, later := c.d.track.inTurn(group)
	for _, d := range later {
		if d.behindStuck() {
			c.stick(d)
		} else {
			c.setAside([]*delivery{d})
		}
	}
	return now
}

// asidePatience is that for outcomes that were set aside. One that fails alone
// gets more each time, for nothing else may ever tell that the database is slow.
func (c *completer) asidePatience(n int) time.Duration {
	half := c.patience.Now() / 2
	if n > 1 {
		return half
	}
	return min(max(c.pause/2, half), completerAlone)
}
