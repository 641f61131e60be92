package outbox

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"time"
)

// heldTable is the table that one process at a time delivers from, in [SingleNode] and [Ordered]. The
// hold is the right to the range of all rows, under the name of the process; see [Ranges]. A
// heldTable is for one goroutine.
type heldTable struct {
	db     DB
	store  Store
	owner  string
	poller *poller
	// died says that a statement without an answer may have begun the hold, and took the rights of
	// processes that died.
	died bool
	// doubt says that a statement without an answer may have begun the hold, or may do so later.
	doubt bool
}

// Hold takes or renews the hold. Another process's rights that last keep this process away.
func (t *heldTable) Hold(ctx context.Context, d time.Duration) (owner string, died bool, err error) {
	for tried := (*Ranges)(nil); ; {
		list, err := t.read(ctx, tried)
		if err != nil {
			return "", false, fmt.Errorf("outbox: asking which process holds the table: %w", err)
		}
		tried = &list
		others := t.others(list)
		if i := slices.IndexFunc(others, list.lasts); i >= 0 {
			t.died = false
			return others[i].Name, false, nil
		}
		t.died = len(others) > 0 || t.died && len(list.Ranges) > 0
		until := list.Now.Add(d)
		set, err := t.set(ctx, list, until, Range{Name: t.owner, Until: until})
		if t.doubt = err != nil; t.doubt {
			return "", false, err
		}
		if set {
			died, t.died = t.died, false
			return t.owner, died, nil
		}
	}
}

// Release gives the table up.
func (t *heldTable) Release(ctx context.Context) error {
	for tried := (*Ranges)(nil); ; {
		list, err := t.read(ctx, tried)
		if err != nil {
			return err
		}
		tried = &list
		others := t.others(list)
		if len(others) == len(list.Ranges) && !t.doubt {
			return nil
		}
		set, err := t.set(ctx, list, list.Now.Add(maxRight), others...) // a statement that comes later finds another version
		if set {
			t.doubt = false
		}
		if set || err != nil {
			return err
		}
	}
}

// read reads the list. It fails when the list is as it was before a set that did not replace it.
func (t *heldTable) read(ctx context.Context, tried *Ranges) (Ranges, error) {
	list, err := t.store.Ranges(ctx, t.db)
	if err == nil && tried != nil && tried.Version == list.Version {
		err = errRangesStay
	}
	return list, err
}

// others are the ranges of other processes.
func (t *heldTable) others(list Ranges) []Range {
	return slices.DeleteFunc(slices.Clone(list.Ranges), func(r Range) bool { return r.Name == t.owner })
}

// set replaces the list; false when another process was faster.
func (t *heldTable) set(ctx context.Context, list Ranges, by time.Time, next ...Range) (bool, error) {
	set, err := t.store.SetRanges(ctx, t.db, list.Version, by, Ranges{Version: rand.Text(), Ranges: next})
	if err != nil {
		return false, fmt.Errorf("outbox: setting the hold on the table: %w", err)
	}
	return set, nil
}

// Gained is called when this process begins to hold the table.
func (t *heldTable) Gained(died bool) { t.poller.begin(died) }

// Begin makes the poller read.
func (t *heldTable) Begin() { t.poller.Wake() }
