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
		switch {
		case row.Lease != "":
			text += "; and " + leased(row, nodes)
		case row.AvailableAt.After(now):
			text += "; and " + later(row)
		}
		return text, nil
	}
	switch {
	case row.Lease != "":
		return leased(row, nodes), nil
	case row.AvailableAt.After(now):
		return later(row), nil
	}
	nodes = slices.DeleteFunc(nodes, func(n outbox.Node) bool { return !n.Live || n.Problem == "" && !n.Delivers() })
	switch {
	case len(nodes) == 0:
		return "no process delivers", nil
	case !heard(nodes, kind):
		return "no process that reports has a listener for its kind", nil
	}
	if slices.ContainsFunc(nodes, func(n outbox.Node) bool { return n.Mode == "ordered-by-key" }) && row.AggregateID != "" {
		behind, err := behind(ctx, ob, row)
		if behind != "" || err != nil {
			return behind, err
		}
	}
	if polled := lastPoll(nodes); now.Sub(polled) > pollAge {
		return "no process has polled since " + instant(polled), nil
	}
	return "it has been due since " + instant(row.AvailableAt) + ", and a process has yet to take it", nil
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
		return fmt.Sprintf("it is in hand since %s under the lease %s, of a process that does not report; another process takes it over when the lease expires", since, row.Lease)
	case nodes[owner].Live:
		return fmt.Sprintf("%s has it in hand since %s", nodes[owner].Owner, since)
	default:
		return fmt.Sprintf("%s had it in hand and died, last seen at %s; another process takes it over when the lease of %s expires", nodes[owner].Owner, instant(nodes[owner].SeenAt), since)
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

// behind names an event of the same key that comes first, if a search of bounded length finds one.
func behind(ctx context.Context, ob *outbox.Outbox, row *outbox.EventRow) (string, error) {
	of := outbox.EventFilter{AggregateType: row.AggregateType, AggregateID: row.AggregateID}
	of.Statuses = []outbox.Status{outbox.StatusDead}
	page, err := ob.FindEvents(ctx, outbox.EventQuery{EventFilter: of, Limit: 1})
	if err != nil {
		return "", err
	}
	if len(page.Rows) > 0 {
		return fmt.Sprintf("event %s of its key is DEAD and holds it back, unless OnDead is SkipDead", page.Rows[0].EventID), nil
	}
	of.Statuses = []outbox.Status{outbox.StatusNew, outbox.StatusRetry}
	page, err = ob.FindEvents(ctx, outbox.EventQuery{EventFilter: of, Limit: 1})
	if err != nil || len(page.Rows) == 0 || page.Rows[0].EventID == row.EventID {
		return "", err
	}
	return fmt.Sprintf("event %s of its key comes first", page.Rows[0].EventID), nil
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
