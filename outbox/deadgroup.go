package outbox

import (
	"context"
	"time"
)

// GroupLimit is how many dead letters [DeadLetters.Groups] reads.
const GroupLimit = 10_000

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

// Groups groups the dead letters that the filter chooses: the first GroupLimit of them, in
// the order of death.
func (d *DeadLetters) Groups(ctx context.Context, f DeadFilter) (DeadGroups, error) {
	panic("not built")
}

// ReasonOf is an error's text without numbers, ids, addresses and quoted values, so that the
// same failure of two events has the same reason.
func ReasonOf(text string) string { panic("not built") }

// BulkOption changes how [DeadLetters.ReplayAll] and [DeadLetters.DeleteAll] work.
type BulkOption func(*bulk)

type bulk struct{ progress func(done int) }

// OnProgress calls fn after each batch with the number of events so far.
func OnProgress(fn func(done int)) BulkOption { return func(b *bulk) { b.progress = fn } }

// DeleteAll deletes, batch by batch, the events that were dead when it began. It returns how
// many it deleted, also with an error. A batch of zero is 500.
func (d *DeadLetters) DeleteAll(ctx context.Context, f DeadFilter, batch int, opts ...BulkOption) (int, error) {
	panic("not built")
}
