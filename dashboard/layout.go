package dashboard

import "github.com/outboxkit/outbox-go/httptx"

// layout writes the page around its body.
func (p *page) layout(title string, body markup) markup {
	return tags(`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
{}<title>{}{} · outbox</title>
<link rel="icon" href="{}-/icon.svg">
<link rel="stylesheet" href="{}-/style.css">
<script src="{}-/page.js" defer></script>
</head>
<body>
<a class="skip" href="#main">Skip to the content</a>
<header>
<span class="brand">outbox</span>
{}
{}
<span class="user">{}{}</span>
</header>
<main id="main" tabindex="-1">
{}<h1>{}</h1>
{}
</main>
<footer>Made at {}.</footer>
</body>
</html>
`,
		when(p.Refresh, `<meta http-equiv="refresh" content="2">`), title, when(p.Name != "", ` · {}`, p.Name), p.Root, p.Root, p.Root,
		p.outboxes(), p.menu(), p.User, when(p.ReadOnly(), ` (read-only)`), p.trail(title), title, body, instant(p.Now))
}

// linkedNames is how many outboxes have a link on each page. If there are more, each page has a field for the
// name.
const linkedNames = 20

// outboxes writes the way to the other outboxes, if there are several.
func (p *page) outboxes() markup {
	if !p.Role.May(httptx.View) {
		return ""
	}
	names := p.dashboard.names()
	if len(names) > linkedNames {
		return tags(`<form action="{}" class="jump" role="search" aria-label="Outboxes"><label>Outbox <input name="outbox" value="{}" maxlength="64" autocomplete="off"></label> <button>Open</button></form>`,
			p.Root, p.Name)
	}
	return when(len(names) > 1, `<nav aria-label="Outboxes">{}</nav>`, each(names, func(name string) markup {
		return tags(`<a href="{}{}/"{}>{}</a>`, p.Root, name, when(name == p.Name, ` aria-current="true"`), name)
	}))
}

// menu writes the links to the pages of the outbox.
func (p *page) menu() markup {
	item := func(to address, text string, current bool) markup {
		return tags(`<a href="{}"{}>{}</a>
`, to, when(current, ` aria-current="page"`), text)
	}
	return when(p.Name != "", `<nav aria-label="Pages">
{}{}{}{}{}</nav>`,
		item("./", "Overview", p.Here == ""),
		item("events", "Events", p.Here == "events" || p.Here == "event"),
		item("dead", "Dead letters", p.Here == "dead" || p.Here == "letters"),
		item("steering", "Steering", p.Here == "steering"),
		item("audit", "Audit log", p.Here == "audit"))
}

// crumb is a link of the breadcrumbs.
type crumb struct {
	To   address
	Text string
}

// parents are the pages above a page of the outbox, apart from the overview; empty: the overview alone.
var parents = map[string]crumb{
	"event": {"events", "Events"}, "letters": {"dead", "Dead letters"}, "action": {"steering", "Steering"}, "confirm": {}, "act": {},
}

// trail writes the breadcrumbs of a page that has no place of its own in the menu.
func (p *page) trail(title string) markup {
	parent, below := parents[p.Here]
	return when(p.Name != "" && below, `<nav class="trail" aria-label="Breadcrumbs"><ol><li><a href="./">Overview</a></li>{}<li aria-current="page">{}</li></ol></nav>
`, when(parent.To != "", `<li><a href="{}">{}</a></li>`, parent.To, parent.Text), title)
}
