package outbox

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/outboxkit/outbox-go/outbox/internal/loop"
)

// purger deletes old rows, so that the table stays a buffer. A purger is safe for concurrent use,
// also by many nodes on one table.
type purger struct {
	db    DB
	store Store
	opts  PurgeOptions
	byAge bool
	log   *slog.Logger
	clock Clock
	loop  *loop.Loop
}

// Start runs the purger at once, and then at its interval. ctx bounds only the start. Starting
// twice is harmless; after Close, Start returns [ErrClosed].
func (p *purger) Start(ctx context.Context) error { return p.loop.Start(ctx) }

// Close stops the purger and waits until the purger has ended, or until ctx ends.
func (p *purger) Close(ctx context.Context) error {
	if err := p.loop.Close(ctx); err != nil {
		return fmt.Errorf("outbox: closing the purger: %w", err)
	}
	return nil
}

func (p *purger) run(ctx context.Context) {
	ticker := time.NewTicker(p.opts.Interval)
	defer ticker.Stop()
	for {
		if _, err := p.runOnce(ctx); err != nil && ctx.Err() == nil {
			p.log.Error("outbox: purging failed; the next run tries again", logKeyError, err.Error())
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// runOnce deletes all rows that are old now, batch by batch, each in its own transaction, and
// returns how many rows were deleted, also beside an error.
func (p *purger) runOnce(ctx context.Context) (int, error) {
	q := PurgeQuery{Before: storedTime(p.clock.Now().Add(-p.opts.Retention)), ByAge: p.byAge, Limit: p.opts.BatchSize}
	total := 0
	for {
		n, err := p.batch(ctx, q)
		total += n
		if err != nil {
			return total, fmt.Errorf("outbox: purging rows from before %s: %w", formatTime(q.Before), err)
		}
		if n < q.Limit {
			break
		}
	}
	if total > 0 {
		p.log.Info("outbox: purged old rows", logKeyCount, total)
	}
	return total, nil
}

func (p *purger) batch(ctx context.Context, q PurgeQuery) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	return p.store.Purge(ctx, p.db, q)
}

// statementTimeout ends a statement of a loop that the database does not answer: the statement
// fails, is logged and tried again, instead of holding up the loop for ever.
const statementTimeout = 30 * time.Second
