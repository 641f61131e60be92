package outbox

import (
	"context"
	"fmt"
	"time"
)

// DefaultDeadLimit is how many dead letters Query returns by default.
const DefaultDeadLimit = 100

// replayBatch is how many dead letters ReplayAll replays at once by default.
const replayBatch = 500

// DeadLetters lists, replays and deletes dead events. It is safe for concurrent use,
// and works whether or not the outbox runs.
type DeadLetters struct {
	db    DB
	store Store
	clock Clock
	wake  func() // called after a replay or a deletion; may be nil
	// replayed is the status of a replayed event; zero: NEW.
	replayed Status
}

// NewDeadLetters makes a DeadLetters without an outbox. With one, use
// [Outbox.DeadLetters].
func NewDeadLetters(db DB, store Store) (*DeadLetters, error) {
	v := validator{what: "DeadLetters"}
	requireStore(&v, db, store)
	if err := v.err(); err != nil {
		return nil, err
	}
	return &DeadLetters{db: db, store: store, clock: clockOr(nil)}, nil
}

// Query lists dead letters, ordered by their time of death, then by id. A limit of
// zero is 100.
func (d *DeadLetters) Query(ctx context.Context, f DeadFilter, limit int) ([]DeadLetter, error) {
	return d.QueryAfter(ctx, f, DeadLetter{}, limit)
}

// QueryAfter is Query for the next page: it lists the dead letters after last, the
// last one of the previous page, which need not be dead any more. The zero
// DeadLetter starts at the beginning.
func (d *DeadLetters) QueryAfter(ctx context.Context, f DeadFilter, last DeadLetter, limit int) ([]DeadLetter, error) {
	if limit < 0 {
		return nil, &FieldError{Field: "DeadLetters.Query limit", Problem: fmt.Sprintf("is %d; it must be positive, or zero for %d", limit, DefaultDeadLimit)}
	}
	letters, err := d.store.QueryDead(ctx, d.db, DeadQuery{
		DeadFilter: f, AfterDiedAt: last.DiedAt, AfterEventID: last.EventID, Limit: defaultTo(limit, DefaultDeadLimit),
	})
	if err != nil {
		return nil, fmt.Errorf("outbox: listing dead letters: %w", err)
	}
	for i := range letters {
		letters[i].open()
	}
	return letters, nil
}

// Get reads one dead letter. It fails with [ErrNotFound] when the event is not dead.
func (d *DeadLetters) Get(ctx context.Context, eventID string) (DeadLetter, error) {
	l, err := d.store.GetDead(ctx, d.db, eventID)
	if err != nil {
		return DeadLetter{}, fmt.Errorf("outbox: reading dead letter %q: %w", eventID, err)
	}
	l.open()
	return l, nil
}

// open fills the fields that the store leaves empty.
func (l *DeadLetter) open() {
	env, listener := originalOf(&l.Envelope)
	l.Listener, l.OriginalID, l.Headers = listener, env.EventID, env.Headers
}

// Count counts dead letters.
func (d *DeadLetters) Count(ctx context.Context, f DeadFilter) (int64, error) {
	n, err := d.store.CountDead(ctx, d.db, f)
	if err != nil {
		return 0, fmt.Errorf("outbox: counting dead letters: %w", err)
	}
	return n, nil
}

// Replay makes a dead event NEW: no attempts, due now. Under [OrderedByKey] it makes
// it RETRY, so that it comes first in its key; replay with an outbox of that mode. It
// fails with [ErrNotFound] when the event is not dead.
func (d *DeadLetters) Replay(ctx context.Context, eventID string) error {
	n, err := d.replay(ctx, []string{eventID})
	if err == nil && n == 0 {
		err = ErrNotFound
	}
	if err != nil {
		return fmt.Errorf("outbox: replaying dead letter %q: %w", eventID, err)
	}
	return nil
}

// ReplayAll replays, batch by batch, the events that were dead when it began. It
// replays each event once, even if it dies again in the meantime. It returns how many
// it replayed, also with an error. A batch of zero is 500.
func (d *DeadLetters) ReplayAll(ctx context.Context, f DeadFilter, batch int, opts ...BulkOption) (int, error) {
	if batch < 0 {
		return 0, &FieldError{Field: "DeadLetters.ReplayAll batch", Problem: fmt.Sprintf("is %d; it must be positive, or zero for %d", batch, replayBatch)}
	}
	began, err := d.store.Now(ctx, d.db) // the clock of the times of death
	if err != nil {
		return 0, fmt.Errorf("outbox: replaying dead letters: reading the database's clock: %w", err)
	}
	if until := began.Add(time.Microsecond); f.Until.IsZero() || f.Until.After(until) {
		f.Until = until
	}
	q := DeadQuery{DeadFilter: f, Limit: defaultTo(batch, replayBatch), KeysOnly: true}
	total := 0
	for {
		keys, err := d.store.QueryDead(ctx, d.db, q)
		if err != nil {
			return total, fmt.Errorf("outbox: replaying dead letters: %w", err)
		}
		if len(keys) > 0 {
			ids := make([]string, len(keys))
			for i := range keys {
				ids[i] = keys[i].EventID
			}
			n, err := d.replay(ctx, ids)
			total += n
			if err != nil {
				return total, fmt.Errorf("outbox: replaying dead letters: %w", err)
			}
			last := keys[len(keys)-1]
			q.AfterDiedAt, q.AfterEventID = last.DiedAt, last.EventID
		}
		if len(keys) < q.Limit {
			return total, nil
		}
	}
}

func (d *DeadLetters) replay(ctx context.Context, ids []string) (int, error) {
	n, err := d.store.ReplayDead(ctx, d.db, ids, storedTime(d.clock.Now()), d.replayed)
	if n > 0 && d.wake != nil {
		d.wake()
	}
	return n, err
}

// Delete deletes a dead event. It fails with [ErrNotFound] when the event is not dead.
func (d *DeadLetters) Delete(ctx context.Context, eventID string) error {
	n, err := d.store.DeleteDead(ctx, d.db, []string{eventID})
	if err == nil && n == 0 {
		err = ErrNotFound
	}
	if err == nil && d.wake != nil {
		d.wake() // its key may have waited for that
	}
	if err != nil {
		return fmt.Errorf("outbox: deleting dead letter %q: %w", eventID, err)
	}
	return nil
}
