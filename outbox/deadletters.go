package outbox

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/outboxkit/outbox-go/outbox/internal/reason"
	"github.com/outboxkit/outbox-go/outbox/internal/ulid"
)

// defaultDeadLimit is how many dead letters Find returns by default.
const defaultDeadLimit = 100

// DeadLetters lists, replays, deletes and restores dead events. DeadLetters is safe for concurrent
// use, and works whether or not the outbox runs.
type DeadLetters struct {
	db    DB
	store Store
	clock Clock
	audit auditor
	wake  func() // called after a replay or a deletion; may be nil
	// replayed is the status of a replayed event; zero: NEW.
	replayed Status
}

// NewDeadLetters makes a DeadLetters without an outbox. With an outbox, use
// [Outbox.DeadLetters].
func NewDeadLetters(db DB, store Store) (*DeadLetters, error) {
	v := validator{what: "DeadLetters"}
	requireStore(&v, db, store)
	if err := v.err(); err != nil {
		return nil, err
	}
	return &DeadLetters{db: db, store: store, clock: clockOr(nil), audit: auditor{db, store, clockOr(nil)}}, nil
}

// Find lists dead letters, ordered by their time of death, then by id, without their
// payloads and headers; [DeadLetters.Get] reads a dead letter with both.
//
// With a filter by more than the time of death and ids, a page looks at GroupLimit dead
// letters at most. So a page may have fewer letters than the limit, or no letters, although
// there are more: go on with Next until Next is empty. The letters of a page may be replayed or
// deleted before the next page is read.
func (d *DeadLetters) Find(ctx context.Context, q DeadQuery) (Page[DeadLetter], error) {
	if q.Limit < 0 {
		return Page[DeadLetter]{}, &FieldError{Field: "DeadQuery.Limit", Problem: fmt.Sprintf("is %d; it must be positive, or zero for %d", q.Limit, defaultDeadLimit)}
	}
	if err := q.validate(); err != nil {
		return Page[DeadLetter]{}, err
	}
	after, err := byDeath.after("DeadQuery.After", q.After)
	if err != nil {
		return Page[DeadLetter]{}, err
	}
	find := d.page
	if q.looks() {
		find = d.chosenPage
	}
	page, err := find(ctx, DeadRowsQuery{DeadFilter: q.DeadFilter, AfterDiedAt: after.AvailableAt, AfterEventID: after.EventID, Limit: defaultTo(q.Limit, defaultDeadLimit), Listed: true})
	if err != nil {
		return Page[DeadLetter]{}, err
	}
	for i := range page.Rows {
		page.Rows[i].open()
	}
	return page, nil
}

// page is a page of all letters. page reads an extra letter, to know whether there is a next
// page.
func (d *DeadLetters) page(ctx context.Context, q DeadRowsQuery) (page Page[DeadLetter], err error) {
	limit := q.Limit
	q.Limit++
	page.Rows, err = d.store.QueryDead(ctx, d.db, q)
	if len(page.Rows) > limit {
		page.Rows = page.Rows[:limit]
		last := &page.Rows[limit-1]
		page.Next = byDeath.Next(Cursor{AvailableAt: last.DiedAt, EventID: last.EventID})
	}
	return page, err
}

// Get reads a dead letter. Get fails with [ErrNotFound] when the event is not dead.
func (d *DeadLetters) Get(ctx context.Context, eventID string) (DeadLetter, error) {
	l, err := d.store.GetDead(ctx, d.db, eventID)
	if err != nil {
		return DeadLetter{}, err
	}
	l.open()
	return l, nil
}

// validate checks the values that a person typed.
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

// indexed is the filter without the fields that looks checks.
func (f DeadFilter) indexed() DeadFilter {
	return DeadFilter{EventIDs: f.EventIDs, Since: f.Since, Until: f.Until}
}

// chooses compares the fields that looks checks with an open letter.
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

// Count counts dead letters; for a group it reads each letter that the other fields choose.
func (d *DeadLetters) Count(ctx context.Context, f DeadFilter) (int64, error) {
	if err := f.validate(); err != nil {
		return 0, err
	}
	if f.Group != "" {
		return d.countGroup(ctx, f)
	}
	return d.store.CountDead(ctx, d.db, f)
}

// Replay makes a dead event NEW: no attempts, due now. Under [OrderedByKey] the event
// becomes RETRY, so that it comes first in the key; replay with an outbox of that mode.
// Replay fails with [ErrNotFound] when the event is not dead, and with [ErrKeyTaken] when a pending
// event has the unique key of the dead event.
func (d *DeadLetters) Replay(ctx context.Context, eventID string) error {
	n, err := d.replay(ctx, []string{eventID})
	if err == nil && n == 0 {
		err = ErrNotFound
	}
	if err != nil {
		return fmt.Errorf("outbox: replaying dead letter %q: %w", eventID, err)
	}
	return d.audit.record(ctx, AuditEntry{Action: "replay", Target: "event_id=" + eventID, Count: n}, nil)
}

func (d *DeadLetters) replay(ctx context.Context, ids []string) (int, error) {
	n, err := d.store.ReplayDead(ctx, d.db, ids, storedTime(d.clock.Now()), d.replayed)
	if n > 0 && d.wake != nil {
		d.wake()
	}
	return n, err
}

// Deletion is a deletion of dead letters.
type Deletion struct {
	// ID is the id for [DeadLetters.Restore]; empty: no letter was deleted, or the deletion is [Final]. Beside
	// an error there is an ID even if Count is zero: the database may have carried out the last batch.
	ID string
	// Count is how many dead letters were deleted.
	Count int
}

// deletion is a deletion that is being made.
type deletion struct {
	Deletion
	d     *DeadLetters
	final bool
	at    time.Time // of the next batch
	last  time.Time // of the batches at the end of a long deletion
}

// deletion begins a deletion at a time of the database's clock, which is also the clock of done_at. The
// generator of the id is not that of the process: the time in the id is exactly this time.
func (d *DeadLetters) deletion(now time.Time, final bool) *deletion {
	at := now.Truncate(deletionSpan)
	del := &deletion{d: d, final: final, at: at, last: at.Add(deletionSpan - time.Microsecond)}
	if !final {
		var ids ulid.Generator
		del.ID = ids.New(at)
	}
	return del
}

// delete deletes a batch.
func (del *deletion) delete(ctx context.Context, ids []string) (int, error) {
	by := ""
	if !del.final {
		by = DeletedBy + del.ID
	}
	n, err := del.d.store.DeleteDead(ctx, del.d.db, ids, by, del.at)
	if del.at.Before(del.last) {
		del.at = del.at.Add(time.Microsecond)
	}
	if n > 0 && del.d.wake != nil {
		del.d.wake() // the event's key may have waited for the deletion
	}
	return n, err
}

// end records the deletion, which ended with err.
func (del *deletion) end(ctx context.Context, target, reason string, err error) (Deletion, error) {
	if del.Count == 0 && err == nil {
		return Deletion{}, nil
	}
	if del.Count > 0 {
		err = del.d.audit.record(ctx, AuditEntry{Action: "delete", Target: target, Count: del.Count, Reason: reason, DeletionID: del.ID}, err)
	}
	return del.Deletion, err
}

// Delete deletes a dead event, so that [DeadLetters.Restore] can undo the deletion; see
// [DeadLetters.DeleteAll]. Delete fails with [ErrNotFound] when the event is not dead.
func (d *DeadLetters) Delete(ctx context.Context, eventID string) (Deletion, error) {
	const doing = "outbox: deleting dead letter %q: %w"
	began, err := d.began(ctx)
	if err != nil {
		return Deletion{}, fmt.Errorf(doing, eventID, err)
	}
	del := d.deletion(began, false)
	if del.Count, err = del.delete(ctx, []string{eventID}); err != nil {
		err = fmt.Errorf(doing, eventID, err)
	} else if del.Count == 0 {
		return Deletion{}, fmt.Errorf(doing, eventID, ErrNotFound)
	}
	return del.end(ctx, "event_id="+eventID, "", err)
}

// Restore undoes a deletion: the dead letters of the deletion become DEAD again, with the time of death,
// the error and the attempts that they had. Restore returns how many letters it restored, also with an
// error. Restore fails with [ErrNotFound] when no letter of the deletion is left: the id is unknown, the
// deletion was [Final], the letters are restored already, or a purge deleted them.
//
// Restore does not undo what happened in between: in [OrderedByKey], events behind a deleted letter may
// have been delivered. A purge deletes a restored letter when its time of death is old enough, as if the
// letter had never been deleted.
func (d *DeadLetters) Restore(ctx context.Context, deletionID string, opts ...BulkOption) (int, error) {
	b := bulkOf(opts)
	if b.final {
		return 0, finalMisused("Restore")
	}
	n, err := d.restore(ctx, deletionID, b)
	if err == nil && n == 0 {
		err = ErrNotFound
	}
	if err != nil {
		err = fmt.Errorf("outbox: restoring deletion %q: %w", deletionID, err)
	}
	if n > 0 {
		err = d.audit.record(ctx, AuditEntry{Action: "restore", Target: "deletion=" + deletionID, Count: n, DeletionID: deletionID}, err)
	}
	return n, err
}

func (d *DeadLetters) restore(ctx context.Context, deletionID string, b *bulk) (total int, err error) {
	q, is := deletedQuery(deletionID, bulkBatch)
	if !is {
		return 0, ErrNotFound
	}
	for idle := 0; ; {
		r, err := d.store.RestoreDead(ctx, d.db, q)
		if total += r.Rows; err != nil {
			return total, err
		}
		b.progress(total)
		if r.Looked < q.Limit {
			return total, nil
		}
		if idle++; r.Rows > 0 || r.Last.After(q.Since) {
			idle = 0
		}
		if idle == maxIdle {
			return total, errors.New("rows of the deletion do not change; does a trigger of the table skip the update?")
		}
		q.Since = r.Last
	}
}

// maxIdle is how many times in a row a restoration may find rows and change none of them: another
// restoration of the same deletion may be ahead.
const maxIdle = 100

// deletedQuery finds the rows of a deletion; false: the text is no id of a deletion.
func deletedQuery(deletionID string, limit int) (DeletedQuery, bool) {
	at, is := ulid.Time(deletionID)
	return DeletedQuery{By: DeletedBy + deletionID, Since: at, Until: at.Add(deletionSpan), Limit: limit}, is
}

// Restorable counts the dead letters that Restore would restore, up to the limit; zero is StatsLimit.
func (d *DeadLetters) Restorable(ctx context.Context, deletionID string, limit int) (int64, error) {
	if limit < 0 {
		return 0, &FieldError{Field: "DeadLetters.Restorable limit", Problem: fmt.Sprintf("is %d; it must be positive, or zero for %d", limit, StatsLimit)}
	}
	q, is := deletedQuery(deletionID, defaultTo(limit, StatsLimit))
	if !is {
		return 0, nil
	}
	return d.store.CountDeleted(ctx, d.db, q)
}

// bulkBatch is how many dead letters ReplayAll and DeleteAll take at once by default.
const bulkBatch = 500

// BulkOption changes how [DeadLetters.ReplayAll], [DeadLetters.DeleteAll] and [DeadLetters.Restore] work.
type BulkOption func(*bulk)

type bulk struct {
	progress func(done int)
	final    bool
	// reason says of a change of a group what the group is, for the audit log, which would have only an id.
	reason string
}

func bulkOf(opts []BulkOption) *bulk {
	b := &bulk{progress: func(int) {}}
	for _, opt := range opts {
		opt(b)
	}
	return b
}

// Final makes [DeadLetters.DeleteAll] delete the rows at once, so that the deletion cannot be undone: for
// data that must be gone, or for space.
func Final() BulkOption { return func(b *bulk) { b.final = true } }

// finalMisused refuses Final where it means nothing.
func finalMisused(method string) error {
	return &FieldError{Field: "DeadLetters." + method + " options", Problem: "have Final, which is for DeleteAll"}
}

// OnProgress calls fn after each batch, in the caller's goroutine, with the number of events
// so far.
func OnProgress(fn func(done int)) BulkOption { return func(b *bulk) { b.progress = fn } }

// ReplayAll replays, batch by batch, the events that were dead when the call began. Each
// event is replayed once, even if it dies again in the meantime. ReplayAll returns how
// many events it replayed, also with an error. Letters whose unique key a pending event has stay
// DEAD: ReplayAll replays the others, and the error is a [KeyTakenError]. A batch of zero is 500.
func (d *DeadLetters) ReplayAll(ctx context.Context, f DeadFilter, batch int, opts ...BulkOption) (int, error) {
	if err := checkBulk("ReplayAll", f, batch); err != nil {
		return 0, err
	}
	b := bulkOf(opts)
	if b.final {
		return 0, finalMisused("ReplayAll")
	}
	n := 0
	began, err := d.began(ctx)
	if err == nil {
		n, err = d.each(ctx, f, began, defaultTo(batch, bulkBatch), b, d.replay)
	}
	if err != nil {
		err = fmt.Errorf("outbox: replaying dead letters: %w", err)
	}
	if n > 0 {
		err = d.audit.record(ctx, AuditEntry{Action: "replay", Target: f.target(), Count: n, Reason: b.reason}, err)
	}
	return n, err
}

// DeleteAll deletes, batch by batch, the events that were dead when the call began. DeleteAll
// returns how many events it deleted, also with an error. A batch of zero is 500.
//
// A deleted letter is no dead letter: it holds back no key, and nothing delivers or replays it. Its row
// stays, DONE, so that [DeadLetters.Restore] can undo the deletion until a purge deletes the row, which is
// [PurgeOptions].Retention after the deletion. Until then, no other event can have the id of the event.
// Without [Config].Purge the rows stay. With [Final] the rows are deleted at once.
func (d *DeadLetters) DeleteAll(ctx context.Context, f DeadFilter, batch int, opts ...BulkOption) (Deletion, error) {
	if err := checkBulk("DeleteAll", f, batch); err != nil {
		return Deletion{}, err
	}
	const doing = "outbox: deleting dead letters: %w"
	b := bulkOf(opts)
	began, err := d.began(ctx)
	if err != nil {
		return Deletion{}, fmt.Errorf(doing, err)
	}
	del := d.deletion(began, b.final)
	if del.Count, err = d.each(ctx, f, began, defaultTo(batch, bulkBatch), b, del.delete); err != nil {
		err = fmt.Errorf(doing, err)
	}
	return del.end(ctx, f.target(), b.reason, err)
}

// began reads the clock of the times of death.
func (d *DeadLetters) began(ctx context.Context) (time.Time, error) {
	now, err := d.store.Now(ctx, d.db)
	if err != nil {
		err = fmt.Errorf("reading the database's clock: %w", err)
	}
	return now, err
}

func checkBulk(method string, f DeadFilter, batch int) error {
	if batch < 0 {
		return &FieldError{Field: "DeadLetters." + method + " batch", Problem: fmt.Sprintf("is %d; it must be positive, or zero for %d", batch, bulkBatch)}
	}
	return f.validate()
}

// each calls fn with the ids of the events that were dead at a time, batch by batch.
func (d *DeadLetters) each(ctx context.Context, f DeadFilter, began time.Time, batch int, b *bulk,
	fn func(ctx context.Context, ids []string) (int, error),
) (total int, err error) {
	if until := began.Add(time.Microsecond); f.Until.IsZero() || f.Until.After(until) {
		f.Until = until
	}
	w := deadWalk{d: d, q: DeadRowsQuery{DeadFilter: f, Limit: batch, KeysOnly: f.Group == ""}}
	var taken *KeyTakenError
	for !w.end {
		letters, err := w.next(ctx)
		if err != nil {
			return total, err
		}
		if letters = ofGroup(letters, f.Group); len(letters) == 0 {
			continue
		}
		if f.Group != "" {
			g := groupOf(&letters[0])
			b.reason = g.Kind.String() + ": " + g.Reason
		}
		ids := deadIDs(letters)
		n, err := fn(ctx, ids)
		total += n
		var more *KeyTakenError
		if errors.As(err, &more) {
			taken, err = taken.and(more), nil
		}
		if err != nil {
			return total, err
		}
		b.progress(total)
	}
	if taken != nil {
		return total, taken
	}
	return total, nil
}

// GroupLimit is how many dead letters [DeadLetters.Groups] reads.
const GroupLimit = 10_000

// groupBatch is how many dead letters are read at once to group them.
const groupBatch = 1000

// DeadGroup is the dead letters of one kind of event, and of one listener, that died for
// the same reason.
type DeadGroup struct {
	// ID names the group, for [DeadFilter].Group. The ID stays the same while the letters
	// come and go.
	ID   string
	Kind EventKind // with the listener, if it has a name
	// Reason is the letters' error without the parts that differ between them: see [ReasonOf].
	Reason string
	Count  int
	// First and Last are times of death.
	First, Last time.Time
	// Example is the event id of the last letter.
	Example string
}

// groupOf is the group of a letter that is open.
func groupOf(l *DeadLetter) DeadGroup {
	kind := kindOf(&l.Envelope)
	kind.Listener = l.Listener
	g := DeadGroup{Kind: kind, Reason: reason.Of(l.LastError), Count: 1, First: l.DiedAt, Last: l.DiedAt, Example: l.EventID}
	sum := sha256.Sum256([]byte(strings.Join([]string{string(kind.AggregateType), string(kind.EventType), kind.Listener, g.Reason}, "\x00")))
	g.ID = strings.ToLower(base32.HexEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:10]))
	return g
}

// Groups groups the dead letters that the filter chooses among the first GroupLimit dead letters, in the
// order of death. Only the time of death and ids choose which letters are the first. The largest group
// comes first; more says that there are dead letters beyond the GroupLimit that were read: give Since to
// begin at later letters. Groups does not read payloads.
func (d *DeadLetters) Groups(ctx context.Context, f DeadFilter) (groups []DeadGroup, more bool, err error) {
	fail := func(err error) ([]DeadGroup, bool, error) {
		return nil, false, fmt.Errorf("outbox: grouping dead letters: %w", err)
	}
	if err := f.validate(); err != nil {
		return nil, false, err
	}
	byID := map[string]*DeadGroup{}
	w := deadWalk{d: d, q: DeadRowsQuery{DeadFilter: f.indexed(), Limit: groupBatch}}
	ofAnyGroup := f
	ofAnyGroup.Group = ""
	for range GroupLimit / groupBatch {
		letters, err := w.next(ctx)
		if err != nil {
			return fail(err)
		}
		for i := range letters {
			if !ofAnyGroup.chooses(&letters[i]) {
				continue
			}
			g := groupOf(&letters[i])
			if all := byID[g.ID]; all != nil {
				g.Count, g.First = all.Count+1, all.First
			}
			byID[g.ID] = &g
		}
	}
	for _, g := range byID {
		if f.Group == "" || f.Group == g.ID {
			groups = append(groups, *g)
		}
	}
	slices.SortFunc(groups, func(a, b DeadGroup) int { return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.ID, b.ID)) })
	w.q.Limit, w.q.KeysOnly = 1, true
	beyond, err := w.next(ctx)
	if err != nil {
		return fail(err)
	}
	return groups, len(beyond) > 0, nil
}

// deadWalk reads dead letters batch by batch.
type deadWalk struct {
	d   *DeadLetters
	q   DeadRowsQuery
	end bool
}

// next reads the next batch; it is empty at the end.
func (w *deadWalk) next(ctx context.Context) ([]DeadLetter, error) {
	if w.end {
		return nil, nil
	}
	letters, err := w.d.store.QueryDead(ctx, w.d.db, w.q)
	if err != nil {
		return nil, err
	}
	if w.end = len(letters) < w.q.Limit; len(letters) > 0 {
		last := &letters[len(letters)-1]
		w.q.AfterDiedAt, w.q.AfterEventID = last.DiedAt, last.EventID
	}
	for i := range letters {
		letters[i].open()
	}
	return letters, nil
}

// ofGroup keeps the letters of a group; empty: all.
func ofGroup(letters []DeadLetter, group string) []DeadLetter {
	if group == "" {
		return letters
	}
	return slices.DeleteFunc(letters, func(l DeadLetter) bool { return groupOf(&l).ID != group })
}

// chosenPage is a page of the letters that a filter chooses without an index. chosenPage
// looks at GroupLimit letters at most, at few of them first.
func (d *DeadLetters) chosenPage(ctx context.Context, q DeadRowsQuery) (page Page[DeadLetter], err error) {
	limit, f := q.Limit, q.DeadFilter
	q.Listed, q.Limit, q.DeadFilter = false, min(limit+1, groupBatch), f.indexed()
	w := deadWalk{d: d, q: q}
	var found []DeadLetter
	for left := GroupLimit; left > 0; {
		w.q.Limit = min(w.q.Limit, left)
		left -= w.q.Limit
		letters, err := w.next(ctx)
		if err != nil {
			return page, err
		}
		found = append(found, slices.DeleteFunc(letters, func(l DeadLetter) bool { return !f.chooses(&l) })...)
		if len(found) > limit || w.end {
			break
		}
		w.q.Limit = min(4*w.q.Limit, groupBatch)
	}
	switch {
	case len(found) > limit:
		found = found[:limit]
		last := &found[limit-1]
		page.Next = byDeath.Next(Cursor{AvailableAt: last.DiedAt, EventID: last.EventID})
	case !w.end:
		page.Next = byDeath.Next(Cursor{AvailableAt: w.q.AfterDiedAt, EventID: w.q.AfterEventID})
	}
	for chunk := range slices.Chunk(deadIDs(found), groupBatch) {
		letters, err := d.store.QueryDead(ctx, d.db, DeadRowsQuery{DeadFilter: DeadFilter{EventIDs: chunk}, Limit: len(chunk), Listed: true})
		if err != nil {
			return page, err
		}
		page.Rows = append(page.Rows, letters...)
	}
	return page, nil
}

// countGroup counts the letters of a group.
func (d *DeadLetters) countGroup(ctx context.Context, f DeadFilter) (n int64, err error) {
	w := deadWalk{d: d, q: DeadRowsQuery{DeadFilter: f, Limit: groupBatch}}
	for !w.end {
		letters, err := w.next(ctx)
		if err != nil {
			return 0, err
		}
		n += int64(len(ofGroup(letters, f.Group)))
	}
	return n, nil
}

func deadIDs(letters []DeadLetter) []string {
	ids := make([]string, len(letters))
	for i := range letters {
		ids[i] = letters[i].EventID
	}
	return ids
}

// ReasonOf is an error's text with "#" for each number, id, hexadecimal value, address, time
// and quoted value, so that the same failure of two events has the same reason. A code that
// says what failed stays: three digits behind "status", "code" or "HTTP", the five characters
// behind "SQLSTATE", and four digits behind "error". The reason is valid UTF-8 of at most 300
// bytes in one line. The reason of a reason is the same text.
func ReasonOf(text string) string { return reason.Of(text) }
