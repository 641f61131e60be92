package outbox

import (
	"errors"
	"slices"
	"time"
)

// markKinds are the kinds in the order in which they are stored.
var markKinds = [...]Outcome{OutcomeDone, OutcomeDelete, OutcomeReleased, OutcomeDeferred, OutcomeRetry, OutcomeDead}

// persist stores a batch, one statement for each kind of outcome in it.
func (c *completer) persist(batch []outcome) {
	byKind(batch, c.persistKind)
	c.d.tellDepths()
}

func byKind(batch []outcome, store func(Outcome, []*outcome)) {
	group := make([]*outcome, 0, len(batch))
	for _, kind := range markKinds {
		group = group[:0]
		for i := range batch {
			if batch[i].kind == kind {
				group = append(group, &batch[i])
			}
		}
		if len(group) > 0 {
			store(kind, group)
		}
	}
}

// persistKind tries a few times, or once if that took long, then sets aside what
// cannot be stored. When too much is aside already it goes on trying.
func (c *completer) persistKind(kind Outcome, group []*outcome) {
	pause := completerMinPause
	for try := 1; ; try++ {
		began := time.Now()
		err := c.storeGroup(kind, group, c.patience)
		if err == nil {
			return
		}
		c.unstored.add(len(group), logKeyOutcome, kind.String(), logKeyError, err.Error())
		claiming := errors.Is(err, errClaiming)
		if slow := time.Since(began) >= completerPatience/2; slow || claiming || try >= completerTries {
			group = c.persistParts(kind, group, claiming)
			if c.ctx.Err() != nil || len(c.aside)+len(group) <= completerAside {
				c.setAside(group)
				return
			}
			c.retryAside()
		}
		sleep(c.ctx, pause)
		pause = min(2*pause, completerMaxPause)
	}
}

// storeGroup stores outcomes in one statement. What the answer took says how much
// patience the next one needs.
func (c *completer) storeGroup(kind Outcome, group []*outcome, limit time.Duration) error {
	began := time.Now()
	n, err := c.mark(c.ctx, kind, group, limit)
	if err != nil {
		return err
	}
	c.patience = min(max(4*time.Since(began), completerPatience), completerTimeout)
	c.stored(kind, group, n)
	return nil
}

// persistParts stores what it can of a group that failed as a whole, and returns
// the rest. When nothing of it can be stored it is rather the database that is
// slow, and the next statements get more time. Parts would wait for a claim as the
// whole did.
func (c *completer) persistParts(kind Outcome, group []*outcome, claiming bool) []*outcome {
	if claiming || len(group) == 1 {
		return group
	}
	size, failed := completerPart, 0
	if len(group) <= size {
		size = 1
	}
	left := c.persistEach(kind, group, size, &failed)
	if len(left) == len(group) {
		c.patience = min(2*c.patience, completerTimeout)
	}
	return left
}

// persistEach stores a group in parts, those that fail one by one, and returns
// what is left: the outcomes that failed, and behind the second of them what was
// not tried. That comes first another time.
func (c *completer) persistEach(kind Outcome, group []*outcome, size int, failed *int) []*outcome {
	var left []*outcome
	for len(group) > 0 && *failed < 2 {
		part := group[:min(size, len(group))]
		group = group[len(part):]
		switch err := c.storeGroup(kind, part, c.patience/2); {
		case err == nil:
		case len(part) == 1:
			*failed++
			left = append(left, part[0])
		default:
			left = append(left, c.persistEach(kind, part, 1, failed)...)
		}
	}
	return append(slices.Clone(group), left...)
}

func (c *completer) setAside(group []*outcome) {
	c.pause = max(c.pause, completerMinPause)
	for _, o := range group {
		c.aside = append(c.aside, *o)
	}
}

// retryAside tries the outcomes that were set aside. The others wait meanwhile,
// so it takes little time, and comes again the later the more it took.
func (c *completer) retryAside() {
	if len(c.aside) == 0 {
		return
	}
	began, again := time.Now(), c.aside
	c.aside, c.pause = nil, 2*c.pause
	byKind(again, func(kind Outcome, group []*outcome) {
		err := c.storeGroup(kind, group, c.asidePatience(len(again)))
		if err == nil {
			return
		}
		c.unstored.add(len(group), logKeyOutcome, kind.String(), logKeyError, err.Error())
		c.setAside(c.persistParts(kind, group, errors.Is(err, errClaiming)))
	})
	c.pause = min(max(c.pause, 4*time.Since(began)), completerMaxPause)
	if len(c.aside) == 0 {
		c.pause = 0
	}
	c.d.tellDepths()
}

// asidePatience is that for outcomes that were set aside. One that fails alone
// gets more each time, for nothing else may ever tell that the database is slow.
func (c *completer) asidePatience(n int) time.Duration {
	if n > 1 {
		return c.patience / 2
	}
	return min(max(c.pause/2, c.patience/2), completerAlone)
}
