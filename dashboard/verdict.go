package dashboard

import "github.com/outboxkit/outbox-go/internal/verdict"

// shownVerdict is a verdict with links, for the page and the script.
type shownVerdict struct {
	Level   verdict.Level `json:"level"`
	Summary string        `json:"summary"`
	Head    string        `json:"head"`
	Reasons []shownReason `json:"reasons"`
}

// shownReason is a reason, and where its subject is shown.
type shownReason struct {
	Text string  `json:"text"`
	Link address `json:"link"`
}

// subjects are where the page shows what a reason is about.
var subjects = map[verdict.Subject]address{
	verdict.Backlog: "events?status=DUE", verdict.Nodes: "#nodes", verdict.Paused: "#paused", verdict.Unheard: "#nodes", verdict.Dead: "dead",
}

func showVerdict(v verdict.Verdict) *shownVerdict {
	shown := &shownVerdict{Level: v.Level, Summary: v.Summary, Head: v.Head}
	for _, r := range v.Reasons {
		shown.Reasons = append(shown.Reasons, shownReason{r.Text, subjects[r.Subject]})
	}
	return shown
}

// line writes the verdict. The script writes it again when it changes.
func (v *shownVerdict) line() markup {
	first := true
	reasons := each(v.Reasons, func(r shownReason) markup {
		comma := when(!first, `, `)
		first = false
		return tags(`{}<a href="{}">{}</a>`, comma, r.Link, r.Text)
	})
	return tags(`<p id="verdict" class="verdict" data-level="{}">{}: {}.</p>`, string(v.Level), v.Head, reasons)
}
