package dashboard

import (
	"cmp"
	"context"
	"net/http"

	"github.com/outboxkit/outbox-go/outbox"
)

// lettersOfPage is how many dead letters a page lists.
const lettersOfPage = 50

// letters lists dead letters: the matches of a search, latest first, or the letters of a group,
// earliest first.
func (p *page) letters() error {
	in, err := p.query(append([]string{"after"}, filterFields...)...)
	if err != nil {
		return err
	}
	in = in.trimmed()
	ctx, cancel := p.context()
	defer cancel()
	find := p.searchLetters
	if in.get("group") != "" {
		find = p.lettersOfGroup
	}
	title := choose(in.get("group") != "", "A group of dead letters", "All dead letters")
	found, err := find(ctx, in)
	if isTimeError(err) {
		return p.show(http.StatusBadRequest, title, wrong(err)+in.lettersForm())
	}
	if err != nil {
		return err
	}
	return p.show(http.StatusOK, title, p.lettersBody(in, &found))
}

// letters is a page of dead letters.
type letters struct {
	Letters []outbox.EventRow
	next    string // the place of the next page
	// Partly says that the page has all the matches among Looked dead letters.
	Partly bool
	Looked int
}

func (p *page) lettersBody(in input, found *letters) markup {
	var list markup
	switch {
	case len(found.Letters) > 0:
		list = p.lettersTable(in, found.Letters)
	case !found.Partly:
		list = `<p class="none">There is no such dead letter.</p>`
	}
	group, following := in.get("group"), in.given("after")
	following.Set("after", found.next)
	nextPage := when(found.next != "", `<p><a href="{}" rel="next">{}</a></p>`, linkTo("letters", following), choose(found.Partly, "Go on", "Next page"))
	listed := tags(`Listed by the time of death, the latest first.`)
	if group != "" {
		listed = tags(`One group, listed by the time of death, the earliest first.`)
	}
	if group != "" && len(found.Letters) > 0 {
		first := &found.Letters[0]
		listed = tags(`The group of {}: <strong>{}</strong>. Listed by the time of death, the earliest first.`, rowKind(first), cmp.Or(outbox.ReasonOf(first.LastError), "(no reason)"))
	}
	return in.lettersForm() + tags(`<p class="text">{} <a href="dead">Groups</a></p>
{}
{}
{}
{}
`,
		listed, when(len(found.Letters) > longList, `{}`, nextPage), list,
		when(found.Partly, `<p class="note" role="status">{} among {} dead letters; behind them there may be more.</p>`,
			choose(len(found.Letters) > 0, "These are", "There is none"), count(found.Looked)), nextPage)
}

// lettersForm is the form of a search.
func (in input) lettersForm() markup {
	return tags(`<form method="get" action="letters" class="search">
{}
{}
<label>Died since (UTC) <input name="since" maxlength="40" placeholder="YYYY-MM-DDThh:mm" value="{}"></label>
<label>Until (UTC) <input name="until" maxlength="40" placeholder="YYYY-MM-DDThh:mm" value="{}"></label>
<button>Find</button>
</form>
`,
		when(in.get("group") != "", `<input type="hidden" name="group" value="{}">`, in.get("group")), in.searchFields(), in.get("since"), in.get("until"))
}

// lettersTable lists dead letters, with the forms that change all of them, or a selection.
func (p *page) lettersTable(in input, rows []outbox.EventRow) markup {
	filter := in.given("after")
	return tags(`{}
<div class="wide"><table>
<thead><tr>{}<th scope="col">Id</th><th scope="col">Kind</th><th scope="col">Error</th><th scope="col">Aggregate id</th><th scope="col">Tenant</th><th scope="col">Died</th><th scope="col">Failed attempts</th></tr></thead>
<tbody>{}</tbody></table></div>
{}
`,
		when(p.Operates(), `<form method="post" action="confirm" class="buttons">
{}<input type="hidden" name="scope" value="all">
{}
All that {}: <button name="action" value="replay">Replay all …</button> <button name="action" value="delete" class="danger">Delete all …</button>
</form>
<form method="post" action="confirm" id="selection">{}<input type="hidden" name="scope" value="selection">`,
			p.token("confirm"), hidden(filter), choose(len(filter) > 0, "match", "are dead"), p.token("confirm")),
		when(p.Operates(), `<th scope="col"><input type="checkbox" id="every" aria-label="Select all on this page" hidden></th>`),
		each(rows, p.letterRow),
		when(p.Operates(), `<p class="buttons">Selected: <button name="action" value="replay">Replay selected …</button> <button name="action" value="delete" class="danger">Delete selected …</button></p></form>`))
}

func (p *page) letterRow(row outbox.EventRow) markup {
	return tags(`<tr>{}<th scope="row" class="text"><a href="{}">{}</a></th><td class="text kind" data-label="Kind">{}</td><td class="text long" data-label="Error">{}</td><td class="text" data-label="Aggregate id">{}</td><td class="text" data-label="Tenant">{}</td><td data-label="Died">{}</td><td class="number" data-label="Failed attempts">{}</td></tr>
`,
		when(p.Operates(), `<td class="pick"><input type="checkbox" name="id" value="{}" aria-label="Select {}"></td>`, row.EventID, row.EventID),
		link("event", "id", row.EventID), row.EventID, rowKind(&row), cut(row.LastError, 300), row.AggregateID, row.TenantID, moment(row.EndedAt), row.Attempts)
}

func (p *page) searchLetters(ctx context.Context, in input) (letters, error) {
	query, err := in.events()
	if err != nil {
		return letters{}, err
	}
	query.Statuses, query.Limit = []outbox.Status{outbox.StatusDead}, lettersOfPage
	found, err := p.outbox.FindEvents(ctx, query)
	return letters{
		Letters: found.Rows, next: found.Next, Partly: found.Next != "" && len(found.Rows) < lettersOfPage, Looked: outbox.SearchLimit,
	}, err
}

func (p *page) lettersOfGroup(ctx context.Context, in input) (found letters, err error) {
	filter, err := in.filter()
	if err != nil {
		return found, err
	}
	page, err := p.outbox.DeadLetters().Find(ctx, outbox.DeadQuery{DeadFilter: filter, After: in.get("after"), Limit: lettersOfPage})
	if err != nil {
		return found, err
	}
	found.next, found.Partly, found.Looked = page.Next, page.Next != "" && len(page.Rows) < lettersOfPage, outbox.GroupLimit
	for i := range page.Rows {
		l := &page.Rows[i]
		found.Letters = append(found.Letters, outbox.EventRow{Envelope: l.Envelope, LastError: l.LastError, EndedAt: l.DiedAt, Listener: l.Listener})
	}
	return found, nil
}
