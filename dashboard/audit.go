package dashboard

import (
	"cmp"
	"context"
	"net/http"
	"strings"

	"github.com/outboxkit/outbox-go/outbox"
)

// shownChanges is how many entries of the audit log the page shows.
const shownChanges = 100

// audit shows the latest changes that operators made, in all processes.
func (p *page) audit() error {
	if _, err := p.query(); err != nil {
		return err
	}
	ctx, cancel := p.context()
	defer cancel()
	changes, err := p.outbox.Audit(ctx, outbox.AuditQuery{Limit: shownChanges})
	if err != nil {
		return err
	}
	restorable, err := p.restorable(ctx, changes.Rows)
	if err != nil {
		return err
	}
	list := tags(`<p class="none">The audit log is empty.</p>`)
	if len(changes.Rows) > 0 {
		list = tags(`<div class="wide" tabindex="0" role="region" aria-label="Table of the changes"><table>
<thead><tr><th scope="col">Time</th><th scope="col">User</th><th scope="col">From</th><th scope="col">Action</th><th scope="col">Target</th><th scope="col">Events</th><th scope="col">Reason</th><th scope="col">Result</th></tr></thead>
<tbody>{}</tbody></table></div>
{}
`, each(changes.Rows, func(e outbox.AuditEntry) markup { return p.changeRow(e, restorable[e.DeletionID]) }), when(changes.Next != "", `<p>These are the latest {} changes. The command “outbox audit” and the endpoint /audit list older changes.</p>`, shownChanges))
	}
	return p.show(http.StatusOK, "Audit log", tags(`<p>Pauses, resumes, replays, deletions, restorations and purges by operators, in all processes, the latest first.</p>
{}
`, list))
}

// restorable are the deletions of which there are letters to restore, if the user may restore them.
func (p *page) restorable(ctx context.Context, entries []outbox.AuditEntry) (map[string]bool, error) {
	found := map[string]bool{}
	if !p.Operates() {
		return found, nil
	}
	for i := range entries {
		e := &entries[i]
		if e.Action != "delete" || e.DeletionID == "" {
			continue
		}
		n, err := p.outbox.DeadLetters().Restorable(ctx, e.DeletionID, 1)
		if err != nil {
			return nil, err
		}
		found[e.DeletionID] = n > 0
	}
	return found, nil
}

func (p *page) changeRow(e outbox.AuditEntry, restorable bool) markup {
	return tags(`<tr><td class="text" data-label="Time"><span>{}</span></td><td class="text" data-label="User">{}</td><td class="text" data-label="From">{}</td><td data-label="Action">{}</td><td class="text" data-label="Target"><span>{}</span></td><td class="number" data-label="Events">{}</td><td class="text" data-label="Reason">{}</td><td data-label="Result">{}{}</td></tr>
`, both(e.At), cmp.Or(e.Name, "–"), cmp.Or(e.From, "–"), e.Action, targetLinks(&e), changed(&e), cmp.Or(e.Reason, "–"), choose(e.Incomplete, "incomplete", "done"),
		when(restorable && e.Action == "delete", `{}`, p.undo("confirm", e.DeletionID, "Undo …")))
}

// changed is how many events a change changed. A pause changes no event, nor does the start of a replay of
// delivered events.
func changed(e *outbox.AuditEntry) string {
	if e.Action == "pause" || e.Action == "resume" || strings.HasSuffix(e.Action, "-replay") {
		return "–"
	}
	return count(e.Count)
}

// shownTargets is how many ids of a change the audit log links to.
const shownTargets = 5

// targetLinks writes the target of a change, with links to events, groups, deletions and kinds.
func targetLinks(e *outbox.AuditEntry) markup {
	name, value, _ := strings.Cut(e.Target, "=")
	kind, rest, _ := strings.Cut(e.Target, " ")
	aggregate, event, isKind := strings.Cut(kind, "/")
	switch {
	case name == "event_id":
		return eventLinks(value)
	case name == "group" && !strings.Contains(value, "&"):
		return tags(`<a href="{}">{}</a>`, link("letters", "group", value), cut(e.Target, 200))
	case name == "deletion":
		return tags(`<a href="{}">{}</a>`, link("events", "deletion", value), cut(e.Target, 200))
	case isKind && (e.Action == "pause" || e.Action == "resume"):
		shown := kindText(outbox.EventKind{AggregateType: outbox.AggregateType(aggregate), EventType: outbox.EventType(event)})
		return tags(`<a href="{}">{}</a>{}`, link("events", "aggregate_type", aggregate, "event_type", event), shown, when(rest != "", ` {}`, cut(rest, 200)))
	default:
		return tags(`{}`, cut(e.Target, 200))
	}
}

// eventLinks writes ids with commas between, of which the last may be followed by " and … more".
func eventLinks(list string) markup {
	list, more, _ := strings.Cut(list, " ")
	ids := strings.Split(list, ",")
	shown := ids[:min(len(ids), shownTargets)]
	return tags(`{}{}{}{}`, "event_id=", each(shown, func(id string) markup {
		return tags(`{}<a href="{}">{}</a>`, when(id != shown[0], `, `), link("event", "id", id), id)
	}), when(len(shown) < len(ids), ` and {} others`, len(ids)-len(shown)), when(more != "", ` {}`, more))
}
