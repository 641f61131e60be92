package outbox

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/outboxkit/outbox-go/outbox/internal/patience"
)

// leavingOut is what the poller knows about passes that leave out kinds of events.
type leavingOut struct {
	except      []EventKind // what the last batch left out, or refused
	laneBatches int         // since a lane that had no room has some
	first       Cursor      // where the present pass began
	swept       time.Time   // when the last pass over all rows began; zero: it has not ended
}

// passOver reports whether a refused event does not end the batch that it came in,
// because it was refused for its kind.
func (p *Poller) passOver(env *Envelope) bool {
	if !p.dispatcher.passesOver(env) {
		return false
	}
	if kind := kindOf(env); !slices.Contains(p.except, kind) {
		p.except = append(p.except, kind)
	}
	return true
}

// readPauses reads what is paused if that is due. It leaves the poller's patience as it
// is: it is fast when claims are slow.
func (p *Poller) readPauses(ctx context.Context) error {
	if p.dispatcher == nil || !p.dispatcher.pauses.isDue() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, p.patience.Now())
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
	fewer := slices.ContainsFunc(p.except, func(kind EventKind) bool { return !slices.Contains(except, kind) })
	if fewer {
		p.laneBatches = 0
	}
	if p.again.Swap(false) || fewer {
		p.cursor, p.swept = Cursor{}, time.Time{}
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

// passStart is where a pass over the table begins. A pass that leaves out kinds reads
// past all of their rows. While another transaction holds an old snapshot, any pass
// reads past the rows that were delivered since then. So after one that began at the
// start of the table, and for as long as sweepPause, passes begin where recent rows do.
func (p *Poller) passStart(now time.Time) Cursor {
	cheap := len(p.except) == 0 && p.fromStart.Last() < slowRead
	if cheap || now.Sub(p.swept) > max(p.sweepPause(), time.Second) {
		p.swept = time.Time{}
		return Cursor{}
	}
	return Cursor{AvailableAt: storedTime(p.swept.Add(-p.opts.SkipRecent - lateCommit))}
}

// sweepPause is the time between two reads from the start of the table: the interval. While
// kinds are left out it grows with their rows, so that the reads take a hundredth of the time.
func (p *Poller) sweepPause() time.Duration {
	if len(p.except) == 0 {
		return p.opts.Interval
	}
	return max(p.opts.Interval, min(100*p.fromStart.Last(), maxSweepPause))
}

// maxSweepPause is how long an event may wait at most that only a read from the start of
// the table finds, unless the interval is longer.
const maxSweepPause = time.Minute

// lateCommit is how long a transaction may take, so that a pass which begins at recent
// rows finds its events. Those of longer ones wait for a pass over all rows.
const lateCommit = 10 * time.Second

// slowRead is how long a read from the start of the table takes that is not repeated
// within sweepPause.
const slowRead = 100 * time.Millisecond

// patienceFrom is the patience for a read from a place. Reads from the start have their
// own: they may take much longer than others, which would lower the limit each time.
func (p *Poller) patienceFrom(place Cursor) *patience.Patience {
	if place.IsZero() {
		return &p.fromStart
	}
	return &p.patience
}

// endPass ends a pass over the table: the lanes have what they had left there before the
// last batch.
func (p *Poller) endPass(left map[*lane]int64) {
	p.cursor = Cursor{}
	for l, n := range left {
		l.left.CompareAndSwap(n, 0)
	}
	if p.first.IsZero() && p.swept.IsZero() {
		p.swept = p.scanned
	}
}

// startOver makes the poller look now, from the start of the table: rows became free.
func (p *Poller) startOver() {
	p.again.Store(true)
	p.Wake()
}

// room is how many events the handler takes now, or none while there is not
// enough room for a batch worth reading.
func (p *Poller) room() int {
	if p.dispatcher != nil && !p.dispatcher.hasRoom() {
		return 0
	}
	return p.handler.AvailableCapacity()
}
