package outbox

import (
	"context"
	"errors"
	"time"
)

// Limits of patience.
const (
	minPatience   = 2 * time.Second
	maxPatience   = 30 * time.Second
	patienceTries = 3 // statements that time out in a row before the limit grows
)

// patience is how long one statement of a loop may take. A connection that went
// silent costs the shortest time, and the driver drops it. The limit grows only
// while everything is slow: when several statements in a row ran out of it. The
// zero value is ready; it belongs to one goroutine.
type patience struct {
	limit    time.Duration
	timeouts int           // in a row
	last     time.Duration // how long the last statement took that did not fail
}

func (p *patience) now() time.Duration { return max(p.limit, minPatience) }

// context is one for a statement.
func (p *patience) context(parent context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(parent, p.now())
}

// statement runs one statement.
func (p *patience) statement(ctx context.Context, run func(ctx context.Context) error) error {
	ctx, cancel := p.context(ctx)
	defer cancel()
	began := time.Now()
	err := run(ctx)
	p.took(time.Since(began), err)
	return err
}

// took takes note of how a statement ended, and how long that took.
func (p *patience) took(d time.Duration, err error) {
	switch {
	case err == nil:
		p.limit, p.timeouts, p.last = min(max(4*d, minPatience), maxPatience), 0, d
	case errors.Is(err, context.DeadlineExceeded) || d >= p.now():
		if p.timeouts++; p.timeouts >= patienceTries {
			p.grow()
		}
	default:
		p.timeouts = 0
	}
}

func (p *patience) grow() { p.limit, p.timeouts = min(2*p.now(), maxPatience), 0 }
