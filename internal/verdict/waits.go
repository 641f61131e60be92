package verdict

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// pollAge is how old a process's last poll is at least when the process seems not to poll. A process
// reports its last poll every ten seconds.
const pollAge = time.Minute

// ends begins the part of a sentence that says what ends the waiting.
const ends = "; it is delivered when "

// Waits says why an event waits, as the rest of a sentence that begins with "waits because"; empty: the
// event is DONE or DEAD. now is this process's clock.
func Waits(ctx context.Context, ob *outbox.Outbox, row *outbox.EventRow, now time.Time) (string, error) {
	if row.Status.Terminal() {
		return "", nil
	}
	nodes, err := ob.Nodes(ctx)
	if err != nil {
		return "", err
	}
	if i := slices.IndexFunc(nodes, func(n outbox.Node) bool { return n.Live && n.Log != nil }); i >= 0 {
		return "its row does not change: " + cut(nodes[i].Owner) + " publishes the rows of this table from the database's log", nil
	}
	paused, err := ob.Paused(ctx)
	if err != nil {
		return "", err
	}
	kind := outbox.EventKind{AggregateType: row.AggregateType, EventType: row.EventType}
	of := func(id string) int {
		return slices.IndexFunc(paused, func(p outbox.Pause) bool { return p.Kind == kind && p.AggregateID == id })
	}
	ofKind, ofKey := of(""), of(row.AggregateID)
	if i := max(ofKind, ofKey); i >= 0 {
		text := "its key is " + Pause(&paused[i])
		if ofKind >= 0 {
			text = "its kind is " + Pause(&paused[ofKind])
		}
		own := notYet(row, nodes, now)
		switch {
		case own != "":
			text += "; and " + own
		case ofKind >= 0 && paused[ofKind].Until.IsZero():
			text += ends + "somebody resumes the kind"
		}
		return text, nil
	}
	if own := notYet(row, nodes, now); own != "" {
		return own, nil
	}
	all := nodes
	nodes = slices.DeleteFunc(slices.Clone(all), func(n outbox.Node) bool { return !n.Live || n.Problem == "" && !n.Delivers() })
	switch {
	case len(nodes) == 0:
		return "no process delivers" + ends + "a process of the service starts", nil
	case !heard(nodes, kind):
		return noListener + lastListener(all, kind) + ends + "a process with such a listener starts", nil
	}
	if slices.ContainsFunc(nodes, func(n outbox.Node) bool { return n.Mode == "ordered-by-key" }) && row.AggregateID != "" {
		behind, err := behind(ctx, ob, row, all, now)
		if behind != "" || err != nil {
			return behind, err
		}
	}
	if polled := lastPoll(nodes); now.Sub(polled) > pollAge {
		return "no process has polled since " + instant(polled), nil
	}
	return "a process has yet to take it" + dueSince + instant(row.AvailableAt), nil
}

const noListener = "no process has a listener for its kind"

// lastListener names the process with a listener for a kind that was seen last.
func lastListener(nodes []outbox.Node, kind outbox.EventKind) string {
	var last *outbox.Node
	for i := range nodes {
		n := &nodes[i]
		if !n.Live && !n.SeenAt.IsZero() && slices.Contains(n.Kinds, kind) && (last == nil || n.SeenAt.After(last.SeenAt)) {
			last = n
		}
	}
	if last == nil {
		return ""
	}
	return fmt.Sprintf("; %s, last seen at %s, had one", cut(last.Owner), instant(last.SeenAt))
}

// dueSince begins the part of a sentence that says since when the event waits.
const dueSince = "; it has been due since "

// notYet says which process has the event in hand, or why the event is not due; empty: it is free.
func notYet(row *outbox.EventRow, nodes []outbox.Node, now time.Time) string {
	switch {
	case row.Lease != "":
		return leased(row, nodes)
	case row.AvailableAt.After(now):
		return later(row)
	default:
		return ""
	}
}

// oldestPage is how many due events the search for the oldest one looks at.
const oldestPage = 200

// oldest says why the oldest due event waits whose kind is not paused; nil: the other reasons say it, or
// paused events come first for as far as the search goes.
func oldest(ctx context.Context, ob *outbox.Outbox, paused []outbox.Pause, now time.Time) (*Reason, error) {
	of := outbox.EventFilter{Statuses: []outbox.Status{outbox.StatusNew, outbox.StatusRetry}, DueBefore: now}
	page, err := ob.FindEvents(ctx, outbox.EventQuery{EventFilter: of, Limit: oldestPage})
	if err != nil {
		return nil, err
	}
	for i := range page.Rows {
		row := &page.Rows[i]
		kind := outbox.EventKind{AggregateType: row.AggregateType, EventType: row.EventType}
		if slices.ContainsFunc(paused, func(p outbox.Pause) bool {
			return p.Kind == kind && (p.AggregateID == "" || p.AggregateID == row.AggregateID)
		}) {
			continue
		}
		why, err := Waits(ctx, ob, row, now)
		if err != nil || strings.HasPrefix(why, "no process delivers") {
			return nil, err
		}
		why, _, _ = strings.Cut(why, ends)
		why, _, _ = strings.Cut(why, dueSince)
		text := fmt.Sprintf("the oldest, %s of %s, waits since %s because %s", row.EventID, kind, clock(row.AvailableAt), cutAt(why, 400))
		cause := row.EventID
		if first, ok := Before(why); ok {
			cause = first
		}
		return &Reason{Subject: Backlog, Text: text, At: row.AvailableAt, EventID: cause}, nil
	}
	return nil, nil
}

// Deleted says of a deleted dead letter who deleted it, and how long it can be restored, as the rest of a
// sentence that begins with "the dead letter"; empty: the event is no deleted dead letter.
func Deleted(ctx context.Context, ob *outbox.Outbox, row *outbox.EventRow) (string, error) {
	if row.DeletionID == "" {
		return "", nil
	}
	by, err := deletedBy(ctx, ob, row)
	if err != nil {
		return "", err
	}
	if by != "" {
		by = " by " + by
	}
	return fmt.Sprintf("was deleted%s at %s; it can be restored %s", by, instant(row.EndedAt), Restorable(ob)), nil
}

// Restorable says how long dead letters can be restored that are deleted.
func Restorable(ob *outbox.Outbox) string {
	switch kept, purges := ob.Retention(); {
	case !purges:
		return "until a purge deletes the row"
	case kept == 0:
		return "until the next purge"
	default:
		return fmt.Sprintf("until a purge deletes the row, %s after the deletion", Span(kept))
	}
}

// auditPages is how many pages of the audit log deletedBy reads at most.
const auditPages = 4

// deletedBy looks in the audit log for the operator who deleted a dead letter; empty: not found. The entry
// is written after the deletion, so an older entry is none of it.
func deletedBy(ctx context.Context, ob *outbox.Outbox, row *outbox.EventRow) (string, error) {
	q := outbox.AuditQuery{Limit: outbox.MaxAuditLimit}
	for range auditPages {
		page, err := ob.Audit(ctx, q)
		if err != nil {
			return "", err
		}
		for i := range page.Rows {
			if e := &page.Rows[i]; e.DeletionID == row.DeletionID && e.Action == "delete" {
				return e.Name, nil
			}
		}
		if q.After = page.Next; page.Next == "" || page.Rows[len(page.Rows)-1].At.Before(row.EndedAt.Add(-time.Hour)) {
			return "", nil
		}
	}
	return "", nil
}

// Pause describes a pause, from "paused" on.
func Pause(p *outbox.Pause) string {
	text := "paused since " + instant(p.Since)
	if !p.Until.IsZero() {
		text += " until " + instant(p.Until)
	}
	switch {
	case p.Automatic:
		text += " by a listener in " + p.By
	case p.By != "":
		text += " by " + p.By
	}
	if p.Reason != "" {
		text += ": " + p.Reason
	}
	return text
}

// leased says which process has the event.
func leased(row *outbox.EventRow, nodes []outbox.Node) string {
	owner := -1
	for i := range nodes {
		if strings.HasPrefix(row.Lease, nodes[i].Owner+"/") && (owner < 0 || len(nodes[i].Owner) > len(nodes[owner].Owner)) {
			owner = i
		}
	}
	switch since := instant(row.LeasedAt); {
	case owner < 0 || nodes[owner].SeenAt.IsZero():
		return fmt.Sprintf("it is in hand since %s under the lease %s, of a process that does not report; another process takes it over when the lease expires, %s after that by default", since, row.Lease, Span(outbox.DefaultLeaseDuration))
	case nodes[owner].Live:
		return fmt.Sprintf("%s has it in hand since %s", nodes[owner].Owner, since)
	default:
		return fmt.Sprintf("%s had it in hand and died, last seen at %s; another process takes it over when the lease of %s expires, %s after that by default", nodes[owner].Owner, instant(nodes[owner].SeenAt), since, Span(outbox.DefaultLeaseDuration))
	}
}

// later says why the event is not due yet.
func later(row *outbox.EventRow) string {
	at := instant(row.AvailableAt)
	switch {
	case row.Attempts > 0:
		return fmt.Sprintf("%s failed, and the next is at %s: %s", number(int64(row.Attempts), "attempt", "attempts"), at, row.LastError)
	case row.LastError != "":
		return fmt.Sprintf("it is deferred until %s: %s", at, row.LastError)
	default:
		return "it is delayed until " + at
	}
}

// heard reports whether one of the processes has, or may have, a listener for the kind.
func heard(nodes []outbox.Node, kind outbox.EventKind) bool {
	return slices.ContainsFunc(nodes, func(n outbox.Node) bool { return n.Kinds == nil || slices.Contains(n.Kinds, kind) })
}

// behind names an event of the same key that comes first, and says why that event waits, if a search of
// bounded length finds one.
func behind(ctx context.Context, ob *outbox.Outbox, row *outbox.EventRow, nodes []outbox.Node, now time.Time) (string, error) {
	for _, status := range []outbox.Status{outbox.StatusDead, outbox.StatusRetry, outbox.StatusNew} { // the order in a key
		of := outbox.EventFilter{Statuses: []outbox.Status{status}, AggregateType: row.AggregateType, AggregateID: row.AggregateID}
		page, err := ob.FindEvents(ctx, outbox.EventQuery{EventFilter: of, Limit: 1})
		switch {
		case err != nil:
			return "", err
		case len(page.Rows) == 0:
			continue
		case page.Rows[0].EventID == row.EventID:
			return "", nil
		}
		first := &page.Rows[0]
		text := comesBefore(first.EventID)
		if status == outbox.StatusDead {
			return text + "is DEAD and holds it back until it is replayed or deleted, unless OnDead is SkipDead", nil
		}
		text += "comes first"
		if why := notYet(first, nodes, now); why != "" {
			text += " (" + why + ")"
		}
		return text, nil
	}
	return "", nil
}

// comesBefore begins a reason that names another event of the same key.
func comesBefore(id string) string { return "event " + id + " of its aggregate " }

// Before returns the id that a reason begins with, if the event waits for another event of its key.
func Before(reason string) (id string, ok bool) {
	rest, ok := strings.CutPrefix(reason, "event ")
	id, _, behind := strings.Cut(rest, " of its aggregate ")
	return id, ok && behind
}

// lastPoll is the last poll of the processes. A process without a poll counts from its start.
func lastPoll(nodes []outbox.Node) (last time.Time) {
	for i := range nodes {
		for _, at := range []time.Time{nodes[i].LastPoll, nodes[i].Started} {
			if at.After(last) {
				last = at
			}
		}
	}
	return last
}

// instant writes a time to the second.
func instant(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }
