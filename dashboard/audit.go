package dashboard

import (
	"cmp"
	"net/http"

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
	list := tags(`<p class="none">The audit log is empty.</p>`)
	if len(changes.Rows) > 0 {
		list = tags(`<div class="wide" tabindex="0" role="region" aria-label="Table of the changes"><table>
<thead><tr><th scope="col">Time</th><th scope="col">User</th><th scope="col">From</th><th scope="col">Action</th><th scope="col">Target</th><th scope="col">Events</th><th scope="col">Reason</th><th scope="col">Result</th></tr></thead>
<tbody>{}</tbody></table></div>
{}
`, each(changes.Rows, changeRow), when(changes.Next != "", `<p>These are the latest {} changes. The command “outbox audit” and the endpoint /audit list older changes.</p>`, shownChanges))
	}
	return p.show(http.StatusOK, "Audit log", tags(`<p>Pauses, resumes, replays, deletions and purges by operators, in all processes, the latest first.</p>
{}
`, list))
}

func changeRow(e outbox.AuditEntry) markup {
	return tags(`<tr><td data-label="Time">{}</td><td class="text" data-label="User">{}</td><td class="text" data-label="From">{}</td><td data-label="Action">{}</td><td class="text" data-label="Target">{}</td><td class="number" data-label="Events">{}</td><td class="text" data-label="Reason">{}</td><td data-label="Result">{}</td></tr>
`, moment(e.At), cmp.Or(e.Name, "–"), cmp.Or(e.From, "–"), e.Action, cut(e.Target, 200), count(e.Count), cmp.Or(e.Reason, "–"), choose(e.Incomplete, "incomplete", "done"))
}
