package outbox

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
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
	// retentions are how long the rows of some kinds are kept.
	retentions func() map[EventKind]time.Duration

	mu     sync.Mutex           // guards the fields below
	places map[string]time.Time // how far the purges of some kinds came
	looked time.Time            // when the purger began to look at all rows
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
func (p *purger) runOnce(ctx context.Context) (total int, err error) {
	now := p.clock.Now()
	p.forget(now)
	for _, q := range p.queries(now) {
		n, err := p.walk(ctx, q)
		total += n
		if err != nil {
			return total, fmt.Errorf("outbox: purging rows from before %s: %w", formatTime(q.Before), err)
		}
	}
	if total > 0 {
		p.log.Info("outbox: purged old rows", logKeyCount, total)
	}
	return total, p.forgetChanges(ctx)
}

// forgetChanges deletes the entries of the audit log whose time is over, and the entries beyond
// AuditLimit, in batches.
func (p *purger) forgetChanges(ctx context.Context) error {
	for {
		n, err := p.forgetBatch(ctx)
		if err != nil {
			return fmt.Errorf("outbox: purging the audit log: %w", err)
		}
		if n == 0 {
			return nil
		}
	}
}

func (p *purger) forgetBatch(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	return p.store.ForgetChanges(ctx, p.db, AuditLimit, auditBatch)
}

// queries are the purges of a run: one of all rows, unless some kinds have a retention of their own.
// Then the rows of these kinds, and the rest, are each deleted by their own age.
func (p *purger) queries(now time.Time) []PurgeQuery {
	all := PurgeQuery{Before: storedTime(now.Add(-p.opts.Retention)), ByAge: p.byAge, Limit: p.opts.BatchSize}
	retentions := p.retentions()
	if len(retentions) == 0 {
		return []PurgeQuery{all}
	}
	kinds := map[time.Duration][]EventKind{}
	rest := all
	for _, kind := range slices.SortedFunc(maps.Keys(retentions), compareKinds) {
		kinds[retentions[kind]] = append(kinds[retentions[kind]], kind)
		rest.Except = append(rest.Except, kind)
	}
	queries := []PurgeQuery{rest}
	for _, retention := range slices.Sorted(maps.Keys(kinds)) {
		q := all
		q.Before, q.Only = storedTime(now.Add(-retention)), kinds[retention]
		queries = append(queries, q)
	}
	if p.byAge {
		return queries
	}
	var parts []PurgeQuery // each follows an index
	for _, q := range queries {
		for _, q.Status = range []Status{StatusDone, StatusDead} {
			parts = append(parts, q)
		}
	}
	return parts
}

// A purge of some kinds reads past the old rows of other kinds, which are kept for longer. So the
// purger remembers how far it came, and begins there the next time: a little before, because a row
// may become visible later than the time in it says. Once a day the purger looks at all rows again.
const (
	lateMarks = time.Hour
	lookAgain = 24 * time.Hour
)

// place is how far the purge of that name came.
func (p *purger) place(name string) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.places[name]
}

func (p *purger) came(name string, place time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.places[name] = place
}

// forget forgets the places once a day.
func (p *purger) forget(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.places == nil || now.Sub(p.looked) >= lookAgain {
		p.places, p.looked = map[string]time.Time{}, now
	}
}

// walk deletes the rows of a query, batch by batch.
func (p *purger) walk(ctx context.Context, q PurgeQuery) (total int, err error) {
	name, chooses := fmt.Sprint(q.Status, q.Only, q.Except), len(q.Only)+len(q.Except) > 0
	if chooses {
		q.Since = p.place(name)
	}
	for {
		purged, err := p.batch(ctx, q)
		total += purged.Rows
		if err != nil {
			return total, err
		}
		if chooses && purged.Last.After(q.Since) {
			q.Since = purged.Last
		}
		if purged.Rows < q.Limit {
			break
		}
	}
	if chooses {
		p.came(name, q.Before.Add(-lateMarks))
	}
	return total, nil
}

func (p *purger) batch(ctx context.Context, q PurgeQuery) (Purged, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	return p.store.Purge(ctx, p.db, q)
}

// statementTimeout ends a statement of a loop that the database does not answer: the statement
// fails, is logged and tried again, instead of holding up the loop for ever.
const statementTimeout = 30 * time.Second
