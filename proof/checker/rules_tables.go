package checker

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// inOrder are the targets of a table, in order.
func inOrder[V any](table map[Target]V) []Target {
	return slices.SortedFunc(maps.Keys(table), func(x, y Target) int {
		return cmp.Or(cmp.Compare(x.Event, y.Event), cmp.Compare(x.Listener, y.Listener))
	})
}

// checkTransactions checks [RuleAcknowledged].
func (f *facts) checkTransactions() {
	for _, id := range slices.Sorted(maps.Keys(f.txs)) {
		switch tx := f.txs[id]; {
		case tx.ended == OpCommitted && !f.Orders[id]:
			f.broken(RuleAcknowledged, "", "transaction %s was acknowledged and does not stand", id)
		case tx.ended == OpRolledBack && f.Orders[id]:
			f.broken(RuleAcknowledged, "", "transaction %s was reported as rolled back and stands", id)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(f.Orders)) {
		if f.txs[id] == nil {
			f.broken(RuleRecords, "", "transaction %s stands, and no record says who wrote it", id)
		}
	}
}

// checkRows checks which rows the outbox table has, and which rows it lacks.
func (f *facts) checkRows() {
	for _, t := range inOrder(f.Rows) {
		row, e := f.Rows[t], f.byID[t.Event]
		if e == nil || !e.stands {
			f.broken(RuleAtomic, t.Event, "there is a row, but the event %s", f.fate(t.Event))
			continue
		}
		switch {
		case e.cancelled():
			f.broken(RuleCancelled, t.Event, "it was cancelled, and its row is %s", row.Status)
		case row.Status == statusDead:
			f.checkDead(t, row)
		case row.Status == statusDone && t.Listener != "" && !f.delivered(t):
			f.broken(RuleDone, t.Event, "the row for %s is DONE, and that listener never succeeded", t.Listener)
		case row.pending() && !f.blocked(e):
			f.broken(RuleEnded, t.Event, "the row of %v is %s at the end", t, row.Status)
		}
		if !row.pending() && row.Lease != "" {
			f.broken(RuleEnded, t.Event, "the row of %v is %s and has the lease %s", t, row.Status, row.Lease)
		}
	}
	for _, e := range f.events {
		if e.stands {
			f.checkFate(e)
		}
	}
}

// fate says in words why an event does not stand.
func (f *facts) fate(id string) string {
	switch e := f.byID[id]; {
	case e == nil:
		return "was never written"
	case e.taken:
		return "was taken back by a savepoint"
	case !e.keptAt.IsZero():
		return "was kept out by " + e.kept
	default:
		return "was rolled back with transaction " + e.tx.id
	}
}

// checkDead checks [RuleDead].
func (f *facts) checkDead(t Target, row Row) {
	buried := func(t Target) bool {
		return slices.ContainsFunc(f.to[t], func(d *delivery) bool { return d.result == Buried })
	}
	said := buried(t)
	if t.Listener == "" {
		said = slices.ContainsFunc(f.targets(f.byID[t.Event]), buried)
	}
	switch {
	case row.LastError == "":
		f.broken(RuleDead, t.Event, "the row of %v is DEAD without a reason", t)
	case f.Promise.Spoils && strings.Contains(row.LastError, "attempts is no number"):
	case strings.HasPrefix(row.LastError, "expired"): // see checkExpires
	case strings.Contains(row.LastError, "unroutable"):
		f.broken(RuleHeard, t.Event, "the row of %v is DEAD: %s", t, row.LastError)
	case f.Promise.Endless[f.byID[t.Event].Type] && !said:
		f.broken(RuleDead, t.Event, "the row of %v is DEAD, and its attempts are endless: %s", t, row.LastError)
	case said, row.Attempts >= f.Promise.MaxAttempts:
	case row.Attempts >= f.Promise.MaxAttempts-1 && strings.Contains(row.LastError, "no attempts left"):
		// Without leases the first death is not counted.
	default:
		f.broken(RuleDead, t.Event, "the row of %v is DEAD after %d of %d attempts, and no listener said so: %s", t, row.Attempts, f.Promise.MaxAttempts, row.LastError)
	}
}

// checkFate checks that an event that stands came to an end.
func (f *facts) checkFate(e *event) {
	row, ok := f.Rows[Target{Event: e.ID}]
	switch {
	case ok && row.Status == statusDone:
		f.checkDone(e)
	case ok, f.gone[Target{Event: e.ID}]:
	default:
		f.checkGone(e)
	}
}

// undelivered are the listeners of an event that never succeeded and have no separate row.
func (f *facts) undelivered(e *event) (without []Target) {
	for _, t := range f.targets(e) {
		if _, own, _ := f.row(t); !own && !f.gone[t] && !f.delivered(t) {
			without = append(without, t)
		}
	}
	return without
}

// checkDone checks an event whose row is DONE.
func (f *facts) checkDone(e *event) {
	without := f.undelivered(e)
	if len(without) == 0 {
		return
	}
	if all := f.targets(e); len(all) > 1 && len(without) < len(all) {
		f.broken(RuleSubscriptions, e.ID, "the row is DONE; %v never succeeded and has no row", without)
		return
	}
	f.broken(RuleDone, e.ID, "the row is DONE, and no listener ever succeeded")
}

// checkGone checks an event without a row.
func (f *facts) checkGone(e *event) {
	if f.dropped(e) || e.mayBeCancelled() {
		return
	}
	switch without := f.undelivered(e); {
	case len(without) > 0:
		f.broken(RuleDelivered, e.ID, "transaction %s stands; there is no row, and no success for %v", e.tx.id, without)
	case !f.Promise.DeletesDone:
		f.broken(RuleAtomic, e.ID, "transaction %s stands; there is no row, and the run deletes none", e.tx.id)
	}
}

// checkEffects checks [RuleOnce].
func (f *facts) checkEffects() {
	for _, t := range inOrder(f.Effects) {
		e, n := f.byID[t.Event], f.Effects[t]
		switch {
		case e == nil || !e.stands:
			f.broken(RuleOnce, t.Event, "there are %d effects, but the event %s", n, f.fate(t.Event))
		case n > 1 && f.Promise.Once[e.Type]:
			f.broken(RuleOnce, t.Event, "there are %d effects of %v", n, t)
		}
	}
	for _, e := range f.events {
		if !e.stands || !f.Promise.Once[e.Type] {
			continue
		}
		for _, t := range f.targets(e) {
			row, _, ok := f.row(t)
			ended := ok && row.Status == statusDone || !ok && f.delivered(t)
			if ended && f.Effects[t] == 0 && f.delivered(t) {
				f.broken(RuleOnce, t.Event, "%v was delivered, and there is no effect", t)
			}
		}
	}
}
