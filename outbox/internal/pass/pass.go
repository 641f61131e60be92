// Package pass keeps the place of a reader that reads a table in passes. A pass is a series of reads,
// each from the place where the last read ended, until a read returns fewer rows than it asked for.
// Meanwhile rows may come behind the place: an event that was committed late, or a lease that was
// given back. A [Pass] answers whether that may be so.
package pass

import (
	"sync/atomic"
	"time"
)

// Pass is the place of a reader; the zero value is a reader that has not begun. P is a place in the
// table; the zero value of P is the start of the table. A Pass is for one goroutine, apart from
// [Pass.Restart].
type Pass[P comparable] struct {
	next  P         // where the next read begins; zero: a new pass begins
	first P         // where this pass began
	began time.Time // when this pass began
	swept time.Time // when the last pass over all rows began; zero: it has not ended
	older bool      // an earlier cycle began this pass
	tail  bool      // the last read ended a pass that it did not begin

	restart atomic.Bool
}

// BeginCycle is called at the beginning of a cycle. If an earlier cycle began the pass, the rows
// for which this cycle runs may be behind the place.
func (p *Pass[P]) BeginCycle() { p.older = p.next != p.start() }

// start is the start of the table.
func (p *Pass[P]) start() (start P) { return start }

// Next is where the next read begins.
func (p *Pass[P]) Next() P { return p.next }

// GoesOn reports whether the next read goes on with the pass. A pass over a long backlog ends
// after a time, so that rows behind its place do not wait for the end of the backlog.
func (p *Pass[P]) GoesOn(now time.Time, longest time.Duration) bool {
	return p.next != p.start() && now.Sub(p.began) <= longest
}

// Begin begins a pass at a place.
func (p *Pass[P]) Begin(now time.Time, first P) {
	if first == p.start() {
		p.swept = time.Time{}
	}
	p.first, p.next, p.began = first, first, now
}

// Read notes a read that began at after and ended at next; last says that the read ended the pass.
func (p *Pass[P]) Read(after, next P, last bool) {
	p.next, p.tail = next, last && after != p.first
}

// MayHaveRowsBehind reports whether the pass that the last read ended may have missed rows for
// which the cycle runs: an earlier cycle began the pass, and the pass had several reads.
func (p *Pass[P]) MayHaveRowsBehind() bool { return p.tail && p.older }

// End ends the pass.
func (p *Pass[P]) End() {
	p.next, p.older = p.start(), false
	if p.first == p.start() && p.swept.IsZero() {
		p.swept = p.began
	}
}

// Swept is when the last pass over all rows began; the zero time while it has not ended.
func (p *Pass[P]) Swept() time.Time { return p.swept }

// ReadAgain makes the next read begin a pass: rows that were read are still there.
func (p *Pass[P]) ReadAgain() { p.next = p.start() }

// StartOver makes the next read begin at the start of the table.
func (p *Pass[P]) StartOver() { p.next, p.swept = p.start(), time.Time{} }

// Restart asks for StartOver from another goroutine.
func (p *Pass[P]) Restart() { p.restart.Store(true) }

// RestartAsked reports whether Restart was called since the last call.
func (p *Pass[P]) RestartAsked() bool { return p.restart.Swap(false) }
