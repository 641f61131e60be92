package outbox

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/outboxkit/outbox-go/outbox/internal/reason"
)

// GroupLimit is how many dead letters [DeadLetters.Groups] reads.
const GroupLimit = 10_000

// groupBatch is how many dead letters are read at once to group them.
const groupBatch = 1000

// DeadGroup is the dead letters of one kind of event, and of one listener, that died for
// the same reason.
type DeadGroup struct {
	// ID names the group, for [DeadFilter].Group. It stays the same while the letters come
	// and go.
	ID   string
	Kind EventKind // with the listener, if it has a name
	// Reason is the letters' error without what differs between them: see [ReasonOf].
	Reason string
	Count  int
	// First and Last are times of death.
	First, Last time.Time
	// Example is the event id of the last one.
	Example string
}

// DeadGroups are groups of dead letters, the largest first.
type DeadGroups struct {
	Groups []DeadGroup
	// More says that there are dead letters beyond the GroupLimit that were read.
	More bool
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

// Groups groups the dead letters that the filter chooses: the first GroupLimit of them, in
// the order of death. It does not read payloads.
func (d *DeadLetters) Groups(ctx context.Context, f DeadFilter) (DeadGroups, error) {
	fail := func(err error) (DeadGroups, error) {
		return DeadGroups{}, fmt.Errorf("outbox: grouping dead letters: %w", err)
	}
	if err := f.validate(); err != nil {
		return DeadGroups{}, err
	}
	byID := map[string]*DeadGroup{}
	w := deadWalk{d: d, q: DeadQuery{DeadFilter: f, Limit: groupBatch}}
	for range GroupLimit / groupBatch {
		letters, err := w.next(ctx)
		if err != nil {
			return fail(err)
		}
		for i := range letters {
			g := groupOf(&letters[i])
			if all := byID[g.ID]; all != nil {
				g.Count, g.First = all.Count+1, all.First
			}
			byID[g.ID] = &g
		}
	}
	var all DeadGroups
	for _, g := range byID {
		if f.Group == "" || f.Group == g.ID {
			all.Groups = append(all.Groups, *g)
		}
	}
	slices.SortFunc(all.Groups, func(a, b DeadGroup) int { return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.ID, b.ID)) })
	w.q.Limit, w.q.KeysOnly = 1, true
	beyond, err := w.next(ctx)
	if err != nil {
		return fail(err)
	}
	all.More = len(beyond) > 0
	return all, nil
}

// deadWalk reads dead letters batch by batch.
type deadWalk struct {
	d   *DeadLetters
	q   DeadQuery
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

// queryChosen is a page of the letters that a filter chooses without an index. It looks at
// GroupLimit letters at most, at few of them first.
func (d *DeadLetters) queryChosen(ctx context.Context, q DeadQuery) (page []DeadLetter, next DeadLetter, err error) {
	limit, f := q.Limit, q.DeadFilter
	q.Sizes, q.Limit, q.DeadFilter = false, min(limit+1, groupBatch), f.indexed()
	w := deadWalk{d: d, q: q}
	var found []DeadLetter
	for left := GroupLimit; left > 0; {
		w.q.Limit = min(w.q.Limit, left)
		left -= w.q.Limit
		letters, err := w.next(ctx)
		if err != nil {
			return nil, next, err
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
		next = placeOf(&found[limit-1])
	case !w.end:
		next = DeadLetter{Envelope: Envelope{EventID: w.q.AfterEventID}, DiedAt: w.q.AfterDiedAt}
	}
	for chunk := range slices.Chunk(deadIDs(found), groupBatch) {
		letters, err := d.store.QueryDead(ctx, d.db, DeadQuery{DeadFilter: DeadFilter{EventIDs: chunk}, Limit: len(chunk), Sizes: true})
		if err != nil {
			return nil, next, err
		}
		page = append(page, letters...)
	}
	return page, next, nil
}

// countGroup counts the letters of one group.
func (d *DeadLetters) countGroup(ctx context.Context, f DeadFilter) (n int64, err error) {
	w := deadWalk{d: d, q: DeadQuery{DeadFilter: f, Limit: groupBatch}}
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
// behind "SQLSTATE", and four digits behind "error". It is valid UTF-8 of at most 300 bytes in
// one line. The reason of a reason is the same text.
func ReasonOf(text string) string { return reason.Of(text) }
