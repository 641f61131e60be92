package dashboard

import (
	"cmp"
	"net/http"
	"time"

	"github.com/outboxkit/outbox-go/internal/verdict"
	"github.com/outboxkit/outbox-go/outbox"
)

// overview shows the counts, the latest deliveries, the nodes and the pauses.
func (p *page) overview() error {
	in, err := p.chosen()
	if err != nil {
		return err
	}
	ctx, cancel := p.context()
	defer cancel()
	now, err := p.site.sampler.recent(ctx)
	if err != nil {
		return err
	}
	if err := p.readAudit(ctx); err != nil {
		return err
	}
	return p.show(http.StatusOK, "Overview", p.overviewBody(&now, in))
}

func (p *page) overviewBody(now *sample, in input) markup {
	texts := now.texts()
	figures := each(overviewFigures, func(f figure) markup {
		label := tags(`{}`, f.Label)
		if f.Link != "" {
			label = tags(`<a href="{}">{}</a>`, f.Link, f.Label)
		}
		return tags(`<div><dt>{}</dt><dd data-text="{}"{}>{}</dd><dd class="help">{}</dd></div>
`, label, f.Name, when(f.Name == "dead" && now.Stats.Dead > 0, ` class="bad"`), texts[f.Name], f.Help)
	})
	return tags(`<div id="live" data-live="live">
{}
<dl class="figures">{}</dl>
<p>As of <time class="clock" data-time="at" datetime="{}" title="{} UTC">{}</time>, <span data-text="poll">{}</span>{}. <span id="state" role="status"></span> <a href="./">Reload</a></p>
</div>
{}{}`, showVerdict(now.Verdict()).lines(), figures, machine(now.At), utc(now.At), now.At.Format("15:04:05 UTC"), texts["poll"],
		polled(now.Stats.LastPoll), p.chartsBody(in), p.tables(now))
}

// polled writes when the poller of this process last polled. The script writes later times.
func polled(at time.Time) markup {
	if at.IsZero() {
		return `<time class="age" data-time="polled" hidden></time>`
	}
	return tags(`<time class="age" data-time="polled" datetime="{}" title="{} UTC">{}</time>`, machine(at), utc(at), ago(at, time.Now()))
}

// tables are the lists of the overview, which the script replaces by lists of the latest sample.
func (p *page) tables(now *sample) markup {
	paused := tags(`<p class="none">Nothing is paused.</p>`)
	if len(now.Stats.Paused) > 0 {
		shown := now.Stats.Paused[:min(len(now.Stats.Paused), maxPausesShown)]
		paused = tags(`<ul>{}</ul>{}`, each(shown, func(pause outbox.Pause) markup {
			return tags(`<li>{}, since {} by {}, until {}{} {}</li>`, pauseText(pause), instant(pause.Since), pausedBy(pause),
				untilOf(pause.Until), when(pause.Reason != "", `: {}`, cut(pause.Reason, 200)), p.resume(pause))
		}), when(len(shown) < len(now.Stats.Paused), `<p><a href="steering">All {} pauses</a></p>`, count(len(now.Stats.Paused))))
	}
	listed := tags(`<p class="none">No process delivers from this table now.</p>`)
	if len(now.Nodes) > 0 {
		listed = tags(`<div class="wide" tabindex="0" role="region" aria-label="Table of the nodes"><table>
<thead><tr><th scope="col">Node</th><th scope="col">State</th><th scope="col">Version</th><th scope="col">Mode</th><th scope="col">Last reported poll</th><th scope="col">Queues</th><th scope="col">Leases</th><th scope="col">Oldest lease</th><th scope="col">Started</th></tr></thead>
<tbody>{}</tbody></table></div>
<p class="help">A node reports every ten seconds. Its last poll and its queues are those of its last report. A reader of the log polls when it has published the whole log.</p>
`, each(now.Nodes, p.nodeRow))
	}
	return tags(`<section id="pauses" aria-labelledby="paused"><h2 id="paused">Paused</h2>
{}
</section>
<section id="processes" aria-labelledby="nodes"><h2 id="nodes">Nodes</h2>
{}
</section>
`, paused, listed)
}

func (p *page) nodeRow(n outbox.Node) markup {
	return tags(`<tr><th scope="row" class="text">{}</th><td data-label="State">{}</td><td class="text" data-label="Version">{}</td><td data-label="Mode">{}</td><td data-label="Last reported poll">{}</td><td data-label="Queues">{}, {}</td><td class="number" data-label="Leases">{}</td><td data-label="Oldest lease">{}</td><td data-label="Started">{}</td></tr>
`, n.Owner, p.nodeState(&n), cmp.Or(cut(n.Version, 60), "–"), modeOf(&n), moment(n.LastPoll), count(n.HotDepth), count(n.ColdDepth), count(n.Leases), moment(n.OldestLease), moment(n.Started))
}

// modeOf is the mode of a node, and how far a reader of the log is behind.
func modeOf(n *outbox.Node) string {
	if n.Log == nil || n.Log.Behind < 0 {
		return n.Mode
	}
	text := n.Mode + ", " + verdict.Bytes(n.Log.Behind) + " behind"
	if n.Log.Kept >= 0 {
		text += ", keeps " + verdict.Bytes(n.Log.Kept)
	}
	return text
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
		return tags(`<span class="bad">not reporting, last seen {}</span>{}`, moment(n.SeenAt), when(n.Holds, `, still holds the table`))
	}
}

// unheard names a few kinds that a node leaves to others.
func unheard(kinds []outbox.EventKind) markup {
	const most = 3
	if len(kinds) == 0 {
		return ""
	}
	shown := kinds[:min(len(kinds), most)]
	names := each(shown, func(kind outbox.EventKind) markup { return tags(`{}{}`, when(kind != shown[0], `, `), kindText(kind)) })
	return tags(`; without a listener here: {}{}`, names, when(len(kinds) > most, `, {} kinds in all`, count(len(kinds))))
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
		"queues": count(s.Stats.HotDepth) + ", " + count(s.Stats.ColdDepth), "poll": "this process does not poll",
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
		t["poll"] = "this process polled " // the time is behind it
	}
	return t
}

// maxPausesShown is how many pauses the overview lists.
const maxPausesShown = 100
