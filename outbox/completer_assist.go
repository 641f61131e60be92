package outbox

import (
	"slices"
	"time"

	"github.com/outboxkit/outbox-go/internal/sqlerr"
	"github.com/outboxkit/outbox-go/outbox/internal/patience"
)

// assist stores a full batch that run has not taken itself. It tries once, and leaves
// to run what it cannot store. Where outcomes are stored in the order in which they came,
// one statement has to end before the next begins, so there it stores nothing.
func (c *completer) assist() {
	defer close(c.failed)
	full := c.full
	if c.d.opts.Workers == 1 || c.d.byKey {
		full = nil
	}
	var patient patience.Patience
	batch := make([]*delivery, 0, completerBatch)
	for {
		select {
		case <-full:
		case <-c.stop:
			return
		}
		if !c.isFull() { // run took it
			continue
		}
		byOutcome(c.gather(batch[:0]), func(outcome Outcome, group []*delivery) {
			began := time.Now()
			again, err := c.storeOnce(outcome, group, patient.Now())
			patient.Took(time.Since(began), err)
			switch {
			case sqlerr.IsRefused(err):
				c.failed <- failure{outcome: outcome, group: slices.Clone(group), refused: true}
			case err != nil:
				c.failed <- c.noteFailure(outcome, slices.Clone(group), began, err)
			case len(again) > 0:
				c.failed <- failure{outcome: outcome, group: again}
			}
		})
		c.d.tellDepths()
	}
}
