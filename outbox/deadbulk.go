package outbox

import (
	"context"
	"fmt"
	"time"
)

// bulkBatch is how many dead letters ReplayAll and DeleteAll take at once by default.
const bulkBatch = 500

// BulkOption changes how [DeadLetters.ReplayAll] and [DeadLetters.DeleteAll] work.
type BulkOption func(*bulk)

type bulk struct{ progress func(done int) }

// OnProgress calls fn after each batch, in the caller's goroutine, with the number of events
// so far.
func OnProgress(fn func(done int)) BulkOption { return func(b *bulk) { b.progress = fn } }

// ReplayAll replays, batch by batch, the events that were dead when it began. It
// replays each event once, even if it dies again in the meantime. It returns how many
// it replayed, also with an error. A batch of zero is 500.
func (d *DeadLetters) ReplayAll(ctx context.Context, f DeadFilter, batch int, opts ...BulkOption) (int, error) {
	if err := checkBulk("ReplayAll", f, batch); err != nil {
		return 0, err
	}
	n, err := d.each(ctx, f, defaultTo(batch, bulkBatch), opts, d.replay)
	if err != nil {
		return n, fmt.Errorf("outbox: replaying dead letters: %w", err)
	}
	return n, nil
}

// DeleteAll deletes, batch by batch, the events that were dead when it began. It returns how
// many it deleted, also with an error. A batch of zero is 500.
func (d *DeadLetters) DeleteAll(ctx context.Context, f DeadFilter, batch int, opts ...BulkOption) (int, error) {
	if err := checkBulk("DeleteAll", f, batch); err != nil {
		return 0, err
	}
	n, err := d.each(ctx, f, defaultTo(batch, bulkBatch), opts, d.delete)
	if err != nil {
		return n, fmt.Errorf("outbox: deleting dead letters: %w", err)
	}
	return n, nil
}

func checkBulk(method string, f DeadFilter, batch int) error {
	if batch < 0 {
		return &FieldError{Field: "DeadLetters." + method + " batch", Problem: fmt.Sprintf("is %d; it must be positive, or zero for %d", batch, bulkBatch)}
	}
	return f.validate()
}

// each calls fn with the ids of the events that were dead when it began, batch by batch.
func (d *DeadLetters) each(ctx context.Context, f DeadFilter, batch int, opts []BulkOption,
	fn func(ctx context.Context, ids []string) (int, error),
) (total int, err error) {
	var b bulk
	for _, opt := range opts {
		opt(&b)
	}
	began, err := d.store.Now(ctx, d.db) // the clock of the times of death
	if err != nil {
		return 0, fmt.Errorf("reading the database's clock: %w", err)
	}
	if until := began.Add(time.Microsecond); f.Until.IsZero() || f.Until.After(until) {
		f.Until = until
	}
	w := deadWalk{d: d, q: DeadQuery{DeadFilter: f, Limit: batch, KeysOnly: f.Group == ""}}
	for !w.end {
		letters, err := w.next(ctx)
		if err != nil {
			return total, err
		}
		ids := deadIDs(ofGroup(letters, f.Group))
		if len(ids) == 0 {
			continue
		}
		n, err := fn(ctx, ids)
		total += n
		if err != nil {
			return total, err
		}
		if b.progress != nil {
			b.progress(total)
		}
	}
	return total, nil
}
