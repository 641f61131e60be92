package outbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/outboxkit/outbox-go/outbox/internal/wait"
)

// Close stops accepting events, lets the queued ones be delivered for
// DrainTimeout, then cancels the listeners' context and gives the rest back.
// A listener that has not returned after another DrainTimeout and a second is left
// running, because nothing can end it; the error reports it. When ctx ends earlier,
// the listeners' context is cancelled at once, and they still have that time to
// return. Storing the last outcomes may take another DrainTimeout. A second Close
// waits for the first one, whatever its own ctx, and returns the same error. A
// listener that calls Close waits for itself, until that time is over.
func (d *Dispatcher) Close(ctx context.Context) error {
	d.closing.Do(func() { go d.shutdown(ctx) })
	<-d.closed
	return d.err
}

func (d *Dispatcher) shutdown(ctx context.Context) {
	defer close(d.closed)
	defer d.policyPanics.Flush()
	defer d.unheard.Flush()
	defer d.drops.Flush()
	defer d.completer.deaths.Flush()
	defer d.panics.Flush()
	defer d.failures.Flush()
	d.mu.Lock()
	was := d.state
	d.state = stopped
	d.mu.Unlock()
	if was != running {
		d.cancelListeners()
		return
	}
	close(d.quit)
	idle := make(chan struct{})
	go func() { d.workers.Wait(); close(idle) }()

	var errs []error
	if !wait.For(ctx, idle, d.opts.DrainTimeout) {
		close(d.abort)
		d.cancelListeners()
		d.giveBack()
		// Workers that are not idle then, without a listener, wait for a database
		// that is away to take their outcomes.
		if !wait.For(context.Background(), idle, d.opts.DrainTimeout+wait.Grace) && d.running.Load() > 0 {
			errs = append(errs, errors.New("outbox: closing the dispatcher: listeners still run although their context was cancelled; their events will be delivered again"))
		}
	}
	d.cancelListeners()
	d.giveBack()                // what came after the workers had looked
	d.completer.commit.Refuse() // what a listener that still runs answers comes too late
	d.leases.keeper.Close()
	unstored := d.completer.close(d.opts.DrainTimeout)
	unreleased := d.leases.releaser.Close(d.opts.DrainTimeout)
	if unstored > 0 {
		errs = append(errs, fmt.Errorf("outbox: closing the dispatcher: %d outcomes could not be stored, or the database did not say that they are; their events may be delivered again", unstored))
	}
	if unreleased > 0 {
		errs = append(errs, fmt.Errorf("outbox: closing the dispatcher: %d leases could not be given back, or the database did not say that they are; other nodes deliver their events when the leases expire, %s after they began, at the latest", unreleased, d.leases.lasts))
	}
	d.err = errors.Join(errs...)
}

// giveBack lets go of what is still queued.
func (d *Dispatcher) giveBack() {
	var left []*delivery
	for dl := d.takeLeft(); dl != nil; dl = d.takeLeft() {
		left = append(left, dl.rest()...)
	}
	for dl := d.lanes.takeLeft(); dl != nil; dl = d.lanes.takeLeft() {
		left = append(left, dl)
	}
	for _, b := range d.batchers.Range {
		left = append(left, b.(*batcher).takeLeft()...)
	}
	d.letGo(left...)
}
