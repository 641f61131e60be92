// Package patience limits how long a statement may take, by how long earlier statements took.
package patience

import (
	"context"
	"errors"
	"time"
)

// The limits of [Patience].
const (
	Shortest = 2 * time.Second
	Longest  = 30 * time.Second
	tries    = 3 // statements that time out in a row before the limit grows
)

// Patience is how long a statement of a loop may take. A connection that went silent costs the
// shortest time, and the driver drops the connection. The limit grows only while everything is
// slow: when several statements in a row reached the limit. The zero value is ready. A Patience
// belongs to a single goroutine.
type Patience struct {
	limit    time.Duration
	timeouts int           // in a row
	last     time.Duration // of the last statement that did not fail
}

// Now is the limit of the next statement.
func (p *Patience) Now() time.Duration { return max(p.limit, Shortest) }

// Last is how long the last statement that did not fail took; 0 before the first.
func (p *Patience) Last() time.Duration { return p.last }

// Context makes a context for the next statement.
func (p *Patience) Context(parent context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(parent, p.Now())
}

// Statement runs a statement within the limit, and notes how it ended.
func (p *Patience) Statement(ctx context.Context, run func(ctx context.Context) error) error {
	ctx, cancel := p.Context(ctx)
	defer cancel()
	began := time.Now()
	err := run(ctx)
	p.Took(time.Since(began), err)
	return err
}

// Took notes how a statement ended, and how long the statement took.
func (p *Patience) Took(d time.Duration, err error) {
	switch {
	case err == nil:
		p.limit, p.timeouts, p.last = min(max(4*d, Shortest), Longest), 0, d
	case errors.Is(err, context.DeadlineExceeded) || d >= p.Now():
		if p.timeouts++; p.timeouts >= tries {
			p.Grow()
		}
	default:
		p.timeouts = 0
	}
}

// Grow doubles the limit, up to [Longest].
func (p *Patience) Grow() { p.limit, p.timeouts = min(2*p.Now(), Longest), 0 }
