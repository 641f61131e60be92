package outbox

import (
	"context"
	"fmt"
	"slices"
)

// readPauses reads what is paused if that is due. It leaves the poller's patience as it
// is: it is fast when claims are slow.
func (p *Poller) readPauses(ctx context.Context) error {
	if p.dispatcher == nil || !p.dispatcher.pauses.isDue() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, p.patience.now())
	defer cancel()
	if err := p.dispatcher.pauses.read(ctx); err != nil {
		return fmt.Errorf("outbox: reading what is paused: %w", err)
	}
	return nil
}

// doubtPauses says that another process may have paused or resumed something.
func (p *Poller) doubtPauses() {
	if p.dispatcher != nil {
		p.dispatcher.pauses.stale.Store(true)
	}
}

// leaveOut decides which kinds of events the next batch leaves out: those that are
// paused, and those whose lanes are full. When there are fewer than before, the pass
// over the table starts over. It returns how many events the other lanes left in the
// table by now.
func (p *Poller) leaveOut() (left map[*lane]int64) {
	d := p.dispatcher
	if d == nil {
		return nil
	}
	except := d.except()
	for _, kind := range p.except {
		if !slices.Contains(except, kind) {
			p.cursor, p.laneBatches = Cursor{}, 0
			break
		}
	}
	p.except = except
	for kind, l := range d.lanes {
		if n := l.left.Load(); n > 0 && !slices.Contains(except, kind) {
			if left == nil {
				left = map[*lane]int64{}
			}
			left[l] = n
		}
	}
	return left
}

// laneRoom bounds the next batch while it may have events for a lane in it that holds
// few: what the lane does not take has to be given back. Each batch may be twice as
// large as the one before, for they may be events of other kinds.
func (p *Poller) laneRoom() int {
	if p.dispatcher == nil {
		return MaxBatch
	}
	room := p.dispatcher.openRoom()
	if room == 0 {
		return MaxBatch
	}
	room <<= min(p.laneBatches, 16)
	p.laneBatches++
	return room
}

// caughtUp is called when a pass over the table ended: the lanes have what they had left
// there before the last batch.
func (p *Poller) caughtUp(left map[*lane]int64) {
	for l, n := range left {
		l.left.CompareAndSwap(n, 0)
	}
}
