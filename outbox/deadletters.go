package outbox

import (
	"context"
	"fmt"
)

// DefaultDeadLimit is how many dead letters Query returns by default.
const DefaultDeadLimit = 100

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

// Query lists dead letters, ordered by their time of death, then by id, without their
// payloads and headers; [DeadLetters.Get] reads those of one. A limit of zero is 100. With
// some filters it looks at GroupLimit dead letters alone: see [DeadLetters.QueryAfter].
func (d *DeadLetters) Query(ctx context.Context, f DeadFilter, limit int) ([]DeadLetter, error) {
	letters, _, err := d.QueryAfter(ctx, f, DeadLetter{}, limit)
	return letters, err
}

// QueryAfter is Query page by page: it lists the dead letters behind the place after, and
// returns the place of the next page. The zero DeadLetter is the place of the first page, and
// a next without an EventID says that there are no more letters. Of a place, only DiedAt and
// EventID count; the letter need not be dead any more.
//
// With a filter by more than the time of death and ids, a page looks at GroupLimit dead
// letters at most. So it may have fewer letters than the limit, or none, although there are
// more: go on until next has no EventID.
func (d *DeadLetters) QueryAfter(ctx context.Context, f DeadFilter, after DeadLetter, limit int) (letters []DeadLetter, next DeadLetter, err error) {
	if limit < 0 {
		return nil, next, &FieldError{Field: "DeadLetters.Query limit", Problem: fmt.Sprintf("is %d; it must be positive, or zero for %d", limit, DefaultDeadLimit)}
	}
	if err := f.validate(); err != nil {
		return nil, next, err
	}
	q := DeadQuery{DeadFilter: f, AfterDiedAt: after.DiedAt, AfterEventID: after.EventID, Limit: defaultTo(limit, DefaultDeadLimit), Sizes: true}
	query := d.queryPage
	if f.looks() {
		query = d.queryChosen
	}
	if letters, next, err = query(ctx, q); err != nil {
		return nil, DeadLetter{}, err
	}
	for i := range letters {
		letters[i].open()
	}
	return letters, next, nil
}

// queryPage is a page of all letters. It reads one more letter, to know whether there is one.
func (d *DeadLetters) queryPage(ctx context.Context, q DeadQuery) (letters []DeadLetter, next DeadLetter, err error) {
	limit := q.Limit
	q.Limit++
	letters, err = d.store.QueryDead(ctx, d.db, q)
	if len(letters) > limit {
		letters = letters[:limit]
		next = placeOf(&letters[limit-1])
	}
	return letters, next, err
}

// placeOf is the place of a page behind a letter.
func placeOf(l *DeadLetter) DeadLetter {
	return DeadLetter{Envelope: Envelope{EventID: l.EventID}, DiedAt: l.DiedAt}
}

// Get reads one dead letter. It fails with [ErrNotFound] when the event is not dead.
func (d *DeadLetters) Get(ctx context.Context, eventID string) (DeadLetter, error) {
	l, err := d.store.GetDead(ctx, d.db, eventID)
	if err != nil {
		return DeadLetter{}, err
	}
	l.open()
	return l, nil
}

// validate checks what a person typed.
func (f DeadFilter) validate() error {
	v := validator{what: "DeadFilter"}
	v.text("EventType", string(f.EventType), MaxEventTypeLength)
	v.text("AggregateType", string(f.AggregateType), MaxAggregateTypeLength)
	v.text("AggregateID", f.AggregateID, MaxAggregateIDLength)
	v.text("TenantID", f.TenantID, MaxTenantIDLength)
	if n := len(f.EventIDs); n > GroupLimit {
		v.add("EventIDs", fmt.Sprintf("has %d ids; the limit is %d", n, GroupLimit))
	}
	for _, id := range f.EventIDs {
		v.text("EventIDs", id, MaxEventIDLength)
	}
	return v.err()
}

// looks reports whether the filter has fields by which no index finds the letters.
func (f DeadFilter) looks() bool {
	return f.EventType != "" || f.AggregateType != "" || f.AggregateID != "" || f.TenantID != "" || f.Group != ""
}

// indexed is the filter without those fields.
func (f DeadFilter) indexed() DeadFilter {
	return DeadFilter{EventIDs: f.EventIDs, Since: f.Since, Until: f.Until}
}

// chooses compares those fields with a letter that is open.
func (f DeadFilter) chooses(l *DeadLetter) bool {
	return (f.EventType == "" || f.EventType == l.EventType) && (f.AggregateType == "" || f.AggregateType == l.AggregateType) &&
		(f.AggregateID == "" || f.AggregateID == l.AggregateID) && (f.TenantID == "" || f.TenantID == l.TenantID) &&
		(f.Group == "" || groupOf(l).ID == f.Group)
}

// open fills the fields that the store leaves empty.
func (l *DeadLetter) open() {
	env, listener := originalOf(&l.Envelope)
	l.Listener, l.OriginalID, l.Headers = listener, env.EventID, env.Headers
}

// Count counts dead letters; for a group it reads each one that the other fields choose.
func (d *DeadLetters) Count(ctx context.Context, f DeadFilter) (int64, error) {
	if err := f.validate(); err != nil {
		return 0, err
	}
	if f.Group != "" {
		return d.countGroup(ctx, f)
	}
	return d.store.CountDead(ctx, d.db, f)
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

func (d *DeadLetters) replay(ctx context.Context, ids []string) (int, error) {
	n, err := d.store.ReplayDead(ctx, d.db, ids, storedTime(d.clock.Now()), d.replayed)
	if n > 0 && d.wake != nil {
		d.wake()
	}
	return n, err
}

// Delete deletes a dead event. It fails with [ErrNotFound] when the event is not dead.
func (d *DeadLetters) Delete(ctx context.Context, eventID string) error {
	n, err := d.delete(ctx, []string{eventID})
	if err == nil && n == 0 {
		err = ErrNotFound
	}
	if err != nil {
		return fmt.Errorf("outbox: deleting dead letter %q: %w", eventID, err)
	}
	return nil
}

func (d *DeadLetters) delete(ctx context.Context, ids []string) (int, error) {
	n, err := d.store.DeleteDead(ctx, d.db, ids)
	if n > 0 && d.wake != nil {
		d.wake() // its key may have waited for that
	}
	return n, err
}
