package dashboard

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/outboxkit/outbox-go/internal/verdict"
	"github.com/outboxkit/outbox-go/outbox"
)

// groupsOfPage is how many groups a page shows. There are as many groups as [outbox.GroupLimit] at most.
const groupsOfPage = 100

// groupOrder is an order of the groups of dead letters: the value of the field "sort", the text of the
// link, and the column by which the groups are sorted.
type groupOrder struct {
	Name, Text, Column string
	Compare            func(a, b outbox.DeadGroup) int
}

var groupOrders = []groupOrder{
	{"", "most letters", "Letters", func(a, b outbox.DeadGroup) int { return cmp.Compare(b.Count, a.Count) }},
	{"latest", "last died", "Last died", func(a, b outbox.DeadGroup) int { return b.Last.Compare(a.Last) }},
	{"oldest", "first died", "First died", func(a, b outbox.DeadGroup) int { return a.First.Compare(b.First) }},
	{"kind", "kind", "Kind", func(a, b outbox.DeadGroup) int { return strings.Compare(kindText(a.Kind), kindText(b.Kind)) }},
}

// dead shows the groups of dead letters.
func (p *page) dead() error {
	in, err := p.query("kind", "text", "sort", "from")
	if err != nil {
		return err
	}
	in = in.trimmed()
	order := slices.IndexFunc(groupOrders, func(o groupOrder) bool { return o.Name == in.get("sort") })
	if order < 0 {
		return &inputError{"sort", "must be latest, oldest or kind, or empty for the largest first"}
	}
	from, err := in.number("from")
	if err != nil {
		return err
	}
	ctx, cancel := p.context()
	defer cancel()
	groups, err := p.site.sampler.deadGroups(ctx)
	if err != nil {
		return err
	}
	list := tags(`<p class="none">No event is dead.</p>`)
	if len(groups.list) > 0 {
		list = p.groupsBody(&worklist{in: in, order: &groupOrders[order], all: groups.list, found: in.groups(groups.list, &groupOrders[order]), from: from, more: groups.more})
	}
	return p.show(http.StatusOK, "Dead letters", list+p.recent())
}

// groups returns the groups that a filter chooses, in an order.
func (in input) groups(all []outbox.DeadGroup, order *groupOrder) []outbox.DeadGroup {
	has := func(text, part string) bool { return strings.Contains(strings.ToLower(text), strings.ToLower(part)) }
	found := slices.DeleteFunc(slices.Clone(all), func(g outbox.DeadGroup) bool {
		return !has(kindText(g.Kind), in.get("kind")) || !has(g.Reason, in.get("text"))
	})
	slices.SortStableFunc(found, order.Compare)
	return found
}

// worklist are the groups that the page of dead letters shows.
type worklist struct {
	in         input
	order      *groupOrder
	all, found []outbox.DeadGroup
	from       int  // the place of the first group of this page in found
	more       bool // there are dead letters without a group here
}

func (p *page) groupsBody(w *worklist) markup {
	from := min(w.from, max(len(w.found)-1, 0)/groupsOfPage*groupsOfPage) // a list may have become shorter
	shown := w.found[from:min(from+groupsOfPage, len(w.found))]
	list := tags(`<p class="none">No group has this in its kind and its reason. <a href="dead">Show all groups</a></p>`)
	if len(shown) > 0 {
		list = tags(`<div class="wide"><table class="groups">
<thead><tr>{}{}</tr></thead>
<tbody>{}</tbody></table></div>
`, each([]string{"Letters", "Reason", "Kind", "First died", "Last died", "Example"}, w.column), when(p.Operates(), `<th scope="col">Actions</th>`), each(shown, p.groupRow))
	}
	return tags(`<form method="get" action="dead" class="filter">
<label>Kind contains <input name="kind" maxlength="250" value="{}" list="kinds" autocomplete="off"></label>
<datalist id="kinds">{}</datalist>
<label>Reason contains <input name="text" maxlength="100" value="{}"></label>
{}<button>Show</button>
</form>
{}{}
{}
{}<p class="help">Grouped by kind and reason; numbers, ids and quoted values are left out of a reason. <a href="letters">List all dead letters</a></p>
`,
		w.in.get("kind"), each(w.kinds(), func(kind string) markup { return tags(`<option value="{}"></option>`, kind) }), w.in.get("text"),
		when(w.order.Name != "", `<input type="hidden" name="sort" value="{}">`, w.order.Name),
		when(w.more, `<p class="note" role="status">There are more. These are the groups of the first {} dead letters.</p>
`, count(outbox.GroupLimit)),
		w.choice(), list, w.pager(from, len(shown)))
}

// column writes the head of a column, which says whether the groups are sorted by the column.
func (w *worklist) column(name string) markup {
	descending := name == "Letters" || name == "Last died"
	return tags(`<th scope="col"{}{}>{}</th>`, when(name == "Letters", ` class="number"`),
		when(name == w.order.Column, ` aria-sort="{}"`, choose(descending, "descending", "ascending")), name)
}

// choice links to the orders of the same groups.
func (w *worklist) choice() markup {
	return tags(`<nav class="choice" aria-label="Order of the groups">Sort by: {}</nav>
`, each(groupOrders, func(o groupOrder) markup {
		to := w.in.given("from", "sort")
		if o.Name != "" {
			to.Set("sort", o.Name)
		}
		return tags(`<a href="{}"{}>{}</a> `, linkTo("dead", to), when(o.Name == w.order.Name, ` aria-current="true"`), o.Text)
	}))
}

// kinds are the kinds that the filter offers.
func (w *worklist) kinds() []string {
	texts := make([]string, len(w.all))
	for i := range w.all {
		texts[i] = kindText(w.all[i].Kind)
	}
	slices.Sort(texts)
	texts = slices.Compact(texts)
	return texts[:min(len(texts), groupsOfPage)]
}

// pager says which groups the page shows, if there are others.
func (w *worklist) pager(from, shown int) markup {
	next, first := w.in.given("from"), w.in.given("from")
	next.Set("from", strconv.Itoa(from+shown))
	switch filtered := len(w.found) < len(w.all); {
	case len(w.found) > shown && shown > 0:
		return tags(`<p>Groups {} to {} of {}. {}{}</p>
`, count(from+1), count(from+shown), count(len(w.found)),
			when(from > 0, `<a href="{}">First page</a> `, linkTo("dead", first)), when(from+shown < len(w.found), `<a href="{}" rel="next">Next page</a>`, linkTo("dead", next)))
	case filtered && shown > 0:
		return tags(`<p>{} of {} groups. <a href="dead">Show all groups</a></p>
`, count(shown), count(len(w.all)))
	default:
		return ""
	}
}

func (p *page) groupRow(g outbox.DeadGroup) markup {
	return tags(`<tr><td class="number total">{}<span class="unit"> {}</span></td><th scope="row" class="text long"><a href="{}">{}</a></th><td class="text kind" data-label="Kind">{}</td><td data-label="First died">{}{}</td><td data-label="Last died">{}</td><td class="text" data-label="Example"><a href="{}">{}</a></td>
{}</tr>
`,
		count(g.Count), plural("letter", g.Count), link("letters", "group", g.ID), cmp.Or(g.Reason, "(no reason)"), kindText(g.Kind), moment(g.First), p.afterDeploy(g.First), moment(g.Last),
		link("event", "id", g.Example), g.Example, when(p.Operates(), `<td class="actions">{}</td>`, p.groupActions(&g)))
}

// afterDeploy names the deploy before the first death of a group, if there was one in the hour before.
func (p *page) afterDeploy(first time.Time) markup {
	deploy, ok := p.series().deployBefore(first)
	return when(ok, ` <span class="help">{} after the deploy of {}</span>`, verdict.Span(first.Sub(deploy.at)), cut(deploy.version, 60))
}

// groupActions are a button, and a menu with the rarer changes.
func (p *page) groupActions(g *outbox.DeadGroup) markup {
	kind := kindText(outbox.EventKind{AggregateType: g.Kind.AggregateType, EventType: g.Kind.EventType})
	return tags(`<form method="post" action="confirm">{}<input type="hidden" name="scope" value="all"><input type="hidden" name="group" value="{}">
<button name="action" value="replay" aria-label="Replay the group {}">Replay …</button></form>
<details class="menu" name="menu"><summary aria-label="More for the group {}">More</summary><div>
<form method="post" action="confirm">{}{}<button name="action" value="pause" aria-label="Pause {} for all its listeners">Pause this kind …</button></form>
<form method="post" action="confirm">{}<input type="hidden" name="scope" value="all"><input type="hidden" name="group" value="{}">
<button name="action" value="delete" class="danger" aria-label="Delete the group {}">Delete …</button></form>
</div></details>`,
		p.token("confirm"), g.ID, g.Reason, g.Reason, p.token("confirm"), kindFields(g.Kind.AggregateType, g.Kind.EventType), kind, p.token("confirm"), g.ID, g.Reason)
}
