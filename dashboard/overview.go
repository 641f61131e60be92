package dashboard

import (
	"net/http"

	"github.com/outboxkit/outbox-go/internal/verdict"
	"github.com/outboxkit/outbox-go/outbox"
)

// overview shows the counts, the latest deliveries, the nodes and the pauses.
func (p *page) overview() error {
	in, err := p.query("node")
	if err != nil {
		return err
	}
	ctx, cancel := p.context()
	defer cancel()
	now := p.dashboard.samplers[p.Name].read(ctx)
	if now.Err != nil {
		return now.Err
	}
	if err := p.readAudit(ctx); err != nil {
		return err
	}
	return p.show(http.StatusOK, "Overview", p.overviewBody(&now, in.get("node")))
}

func (p *page) overviewBody(now *sample, node string) markup {
	texts := now.texts()
	figures := each(overviewFigures, func(f figure) markup {
		label := tags(`{}`, f.Label)
		if f.Link != "" {
			label = tags(`<a href="{}">{}</a>`, f.Link, f.Label)
		}
		return tags(`<div><dt>{}</dt><dd data-text="{}"{}>{}</dd><dd class="help">{}</dd></div>
`, label, f.Name, when(f.Name == "dead" && now.Stats.Dead > 0, ` class="bad"`), texts[f.Name], f.Help)
	})
	paused := tags(`<p class="none">Nothing is paused.</p>`)
	if len(now.Stats.Paused) > 0 {
		shown := now.Stats.Paused[:min(len(now.Stats.Paused), maxPausesShown)]
		paused = tags(`<ul>{}</ul>{}`, each(shown, func(pause outbox.Pause) markup {
			return tags(`<li>{}, since {}{}{}</li>`, pauseText(pause), instant(pause.Since),
				when(!pause.Until.IsZero(), `, until {}`, instant(pause.Until)), when(pause.Reason != "", `: {}`, cut(pause.Reason, 200)))
		}), when(len(shown) < len(now.Stats.Paused), `<p><a href="steering">All {} pauses</a></p>`, count(len(now.Stats.Paused))))
	}
	listed := tags(`<p class="none">No process delivers from this table now.</p>`)
	if len(now.Nodes) > 0 {
		listed = tags(`<div class="wide" tabindex="0" role="region" aria-label="Table of the nodes"><table>
<thead><tr><th scope="col">Node</th><th scope="col">State</th><th scope="col">Mode</th><th scope="col">Last reported poll</th><th scope="col">Queues</th><th scope="col">Leases</th><th scope="col">Oldest lease</th><th scope="col">Started</th></tr></thead>
<tbody>{}</tbody></table></div>
<p class="help">A node reports every ten seconds. Its last poll and its queues are those of its last report.</p>
`, each(now.Nodes, p.nodeRow))
	}
	return tags(`<div id="live" data-live="live">
{}
<dl class="figures">{}</dl>
<p>As of <span data-text="at">{}</span>, <span data-text="poll">{}</span>. <span id="state" role="status"></span> <a href="./">Reload</a></p>
</div>
{}
<section aria-labelledby="paused"><h2 id="paused">Paused</h2>
{}
</section>
<section aria-labelledby="nodes"><h2 id="nodes">Nodes</h2>
{}
</section>
`, showVerdict(now.Verdict()).line(), figures, texts["at"], texts["poll"], p.chartsBody(node), paused, listed)
}

func (p *page) nodeRow(n outbox.Node) markup {
	poll, oldest := "–", "–"
	if !n.LastPoll.IsZero() {
		poll = ago(n.LastPoll, p.Now)
	}
	if !n.OldestLease.IsZero() {
		oldest = ago(n.OldestLease, p.Now)
	}
	return tags(`<tr><th scope="row" class="text">{}</th><td data-label="State">{}</td><td data-label="Mode">{}</td><td data-label="Last reported poll">{}</td><td data-label="Queues">{}, {}</td><td class="number" data-label="Leases">{}</td><td data-label="Oldest lease">{}</td><td data-label="Started">{}</td></tr>
`, n.Owner, p.nodeState(&n), n.Mode, poll, count(n.HotDepth), count(n.ColdDepth), count(n.Leases), oldest, moment(n.Started))
}

func (p *page) nodeState(n *outbox.Node) markup {
	switch {
	case n.Problem != "":
		return tags(`<span class="bad">{}</span>`, n.Problem)
	case n.Live:
		return tags(`live{}{}`, when(n.Holds, `, holds the table`), unheard(n.Unheard))
	case n.SeenAt.IsZero():
		return "has leases, but does not report (older version?)"
	default:
		return tags(`<span class="bad">dead, seen {}</span>{}`, ago(n.SeenAt, p.Now), when(n.Holds, `, still holds the table`))
	}
}

// unheard names a few kinds that a node leaves to others.
func unheard(kinds []outbox.EventKind) markup {
	const most = 3
	if len(kinds) == 0 {
		return ""
	}
	names := each(kinds[:min(len(kinds), most)], func(kind outbox.EventKind) markup { return tags(` {},`, kindText(kind)) })
	return tags(`; without a listener here:{} {} in all`, names, count(len(kinds)))
}

// figure is a number of the overview: the name for the script, and the texts that explain it.
type figure struct {
	Name, Label string
	Link        address
	Help        string
}

var overviewFigures = []figure{
	{"pending", "Pending", "events?status=WAITING", "due and delayed together"},
	{"due", "Due", "events?status=DUE", "waiting, and due now"},
	{"duepaused", "Due and paused", "#paused", "due, of a kind that is paused"},
	{"delayed", "Delayed", "events?status=DELAYED", "waiting for a later time or a retry"},
	{"dead", "Dead", "dead", "given up"},
	{"oldest", "Oldest due", "events?status=DUE", "neither paused nor of a kind with its own limit"},
	{"rate", "Delivered", "events?status=DONE", "within the last minute"},
	{"median", "Median", "", "from due to done"},
	{"p95", "95th percentile", "", "from due to done"},
	{"queues", "Queues", "", "of this process: hot, cold"},
}

// texts returns the values of the figures.
func (s *sample) texts() map[string]string {
	t := map[string]string{
		"pending": upTo(s.Stats.Pending), "due": upTo(s.Stats.Due), "duepaused": upTo(s.Stats.DuePaused), "delayed": upTo(s.Stats.Delayed), "dead": upTo(s.Stats.Dead), "oldest": "–",
		"rate": "none", "median": "–", "p95": "–",
		"queues": count(s.Stats.HotDepth) + ", " + count(s.Stats.ColdDepth),
		"at":     s.At.Format("15:04:05 UTC"), "poll": "this process does not poll",
	}
	if s.Stats.OldestDueAge > 0 {
		t["oldest"] = verdict.Span(s.Stats.OldestDueAge)
	}
	if s.Throughput.Done > 0 {
		t["rate"] = upTo(s.Throughput.Done)
		t["median"], t["p95"] = verdict.Span(s.Throughput.Median), verdict.Span(s.Throughput.P95)
	}
	if s.Stats.PollInterval > 0 {
		t["poll"] = "this process has not polled yet"
	}
	if !s.Stats.LastPoll.IsZero() {
		t["poll"] = "this process polled " + ago(s.Stats.LastPoll, s.At)
	}
	return t
}

// maxPausesShown is how many pauses the overview lists.
const maxPausesShown = 100
