package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/outboxkit/outbox-go/outbox/internal/loop"
)

// PurgerConfig makes a [Purger] by hand; [New] does it for most users.
type PurgerConfig struct {
	// DB and Store are required.
	DB    DB
	Store Store
	// Options tune it.
	Options PurgeOptions
	// ByAge purges whatever the status, by created_at alone, as in [WriterOnly].
	ByAge bool
	// Logger defaults to slog.Default(), Clock to the system's.
	Logger *slog.Logger
	Clock  Clock
}

// Purger deletes old rows, so that the table stays a buffer. It is safe for
// concurrent use, also by many nodes on one table.
type Purger struct {
	db    DB
	store Store
	opts  PurgeOptions
	byAge bool
	log   *slog.Logger
	clock Clock
	loop  *loop.Loop
}

// NewPurger makes a purger. It reports all invalid fields together, each as a
// [FieldError].
func NewPurger(cfg PurgerConfig) (*Purger, error) {
	v := validator{what: "PurgerConfig"}
	requireStore(&v, cfg.DB, cfg.Store)
	options := validator{what: "PurgeOptions"}
	cfg.Options.validate(&options)
	if err := errors.Join(v.err(), options.err()); err != nil {
		return nil, err
	}
	p := &Purger{
		db: cfg.DB, store: cfg.Store, opts: cfg.Options.withDefaults(), byAge: cfg.ByAge,
		log: loggerOr(cfg.Logger), clock: clockOr(cfg.Clock),
	}
	p.loop = loop.New(p.run, ErrClosed)
	return p, nil
}

// Start runs the purger now and then at its interval. ctx bounds the start
// alone. Starting twice is harmless; after Close it is [ErrClosed].
func (p *Purger) Start(ctx context.Context) error { return p.loop.Start(ctx) }

// Close stops it and waits until it has ended, or until ctx ends.
func (p *Purger) Close(ctx context.Context) error {
	if err := p.loop.Close(ctx); err != nil {
		return fmt.Errorf("outbox: closing the purger: %w", err)
	}
	return nil
}

func (p *Purger) run(ctx context.Context) {
	ticker := time.NewTicker(p.opts.Interval)
	defer ticker.Stop()
	for {
		if _, err := p.RunOnce(ctx); err != nil && ctx.Err() == nil {
			p.log.Error("outbox: purging failed, the next run tries again", logKeyError, err.Error())
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// RunOnce deletes all rows that are old now, batch by batch, each its own
// transaction, and returns how many it deleted, also beside an error.
func (p *Purger) RunOnce(ctx context.Context) (int, error) {
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

func (p *Purger) batch(ctx context.Context, q PurgeQuery) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	return p.store.Purge(ctx, p.db, q)
}

// statementTimeout ends a statement of a loop that the database does not answer:
// it fails, is logged and tried again, instead of holding up the loop for ever.
const statementTimeout = 30 * time.Second
