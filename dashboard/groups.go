package dashboard

import (
	"cmp"
	"net/http"
	"slices"
	"strings"

	"github.com/outboxkit/outbox-go/outbox"
)

// groupOrders are the orders of the groups of dead letters, by the value of the field "sort".
var groupOrders = map[string]func(a, b outbox.DeadGroup) int{
	"":       func(a, b outbox.DeadGroup) int { return cmp.Compare(b.Count, a.Count) },
	"latest": func(a, b outbox.DeadGroup) int { return b.Last.Compare(a.Last) },
	"oldest": func(a, b outbox.DeadGroup) int { return a.First.Compare(b.First) },
	"kind":   func(a, b outbox.DeadGroup) int { return strings.Compare(kindText(a.Kind), kindText(b.Kind)) },
}

// dead shows the groups of dead letters.
func (p *page) dead() error {
	in, err := p.query("text", "sort")
	if err != nil {
		return err
	}
	in = in.trimmed()
	order, known := groupOrders[in.get("sort")]
	if !known {
		return &inputError{"sort", "must be latest, oldest or kind, or empty for the largest first"}
	}
	ctx, cancel := p.context()
	defer cancel()
	groups, more, err := p.outbox.DeadLetters().Groups(ctx, outbox.DeadFilter{})
	if err != nil {
		return err
	}
	shown := slices.DeleteFunc(slices.Clone(groups), func(g outbox.DeadGroup) bool {
		return !strings.Contains(strings.ToLower(kindText(g.Kind)+"\n"+g.Reason), strings.ToLower(in.get("text")))
	})
	slices.SortStableFunc(shown, order)
	list := tags(`<p class="none">No event is dead.</p>`)
	if len(groups) > 0 {
		list = p.groupsBody(in, shown, more)
	}
	return p.show(http.StatusOK, "Dead letters", list+p.recent())
}

func (p *page) groupsBody(in input, groups []outbox.DeadGroup, more bool) markup {
	list := tags(`<p class="none">No group has this text in its kind or reason. <a href="dead">Show all groups</a></p>`)
	if len(groups) > 0 {
		list = tags(`<div class="wide"><table class="groups">
<thead><tr><th scope="col" class="number">Letters</th><th scope="col">Reason</th><th scope="col">Kind</th><th scope="col">First died</th><th scope="col">Last died</th><th scope="col">Example</th>{}</tr></thead>
<tbody>{}</tbody></table></div>
`, when(p.Operates(), `<th scope="col">Actions</th>`), each(groups, p.groupRow))
	}
	return tags(`<form method="get" action="dead" class="filter">
<label>Kind or reason contains <input name="text" maxlength="100" value="{}"></label>
<label>Sort by <select name="sort">{}</select></label>
<button>Show</button>
</form>
{}
{}
<p class="help">Grouped by kind and reason; numbers, ids and quoted values are left out of a reason. <a href="letters">List all dead letters</a></p>
`,
		in.get("text"),
		each([]string{"", "latest", "oldest", "kind"}, func(order string) markup {
			text := map[string]string{"": "most letters", "latest": "last died", "oldest": "first died", "kind": "kind"}[order]
			return tags(`<option value="{}"{}>{}</option>`, order, when(order == in.get("sort"), ` selected`), text)
		}),
		when(more, `<p class="note" role="status">There are more. These are the groups of the first {} dead letters.</p>`, count(outbox.GroupLimit)),
		list)
}

func (p *page) groupRow(g outbox.DeadGroup) markup {
	return tags(`<tr><td class="number total">{}<span class="unit"> {}</span></td><th scope="row" class="text long"><a href="{}">{}</a></th><td class="text kind" data-label="Kind">{}</td><td data-label="First died">{}</td><td data-label="Last died">{}</td><td class="text" data-label="Example"><a href="{}">{}</a></td>
{}</tr>
`,
		count(g.Count), plural("letter", g.Count), link("letters", "group", g.ID), cmp.Or(g.Reason, "(no reason)"), kindText(g.Kind), moment(g.First), moment(g.Last),
		link("event", "id", g.Example), g.Example, when(p.Operates(), `<td class="actions">{}</td>`, p.groupActions(&g)))
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
