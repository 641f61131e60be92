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
	// At is the time in Text, for a pointer that rests on it; empty: Text has no time.
	At string `json:"at,omitempty"`
}

// subjects are where the page shows what a reason is about.
var subjects = map[verdict.Subject]address{
	verdict.Backlog: "events?status=DUE", verdict.Nodes: "#nodes", verdict.Paused: "#paused", verdict.Unheard: "#nodes", verdict.Dead: "dead",
	verdict.Replays: "steering#replays",
}

func showVerdict(v verdict.Verdict) *shownVerdict {
	shown := &shownVerdict{Level: v.Level, Summary: v.Summary, Head: v.Head}
	for _, r := range v.Reasons {
		reason := shownReason{Text: r.Text, Link: subjects[r.Subject]}
		if r.EventID != "" {
			reason.Link = link("event", "id", r.EventID)
		}
		if !r.At.IsZero() {
			reason.At = machine(r.At)
		}
		shown.Reasons = append(shown.Reasons, reason)
	}
	return shown
}

// lines write the verdict, a line for each reason. The script writes them again when the verdict changes.
func (v *shownVerdict) lines() markup {
	return tags(`<div id="verdict" class="verdict" data-level="{}" data-summary="{}"><strong>{}:</strong> <ul>{}</ul></div>`,
		string(v.Level), v.Summary, v.Head, each(v.Reasons, func(r shownReason) markup {
			return tags(`<li><a href="{}"{}>{}</a></li>`, r.Link, when(r.At != "", ` data-at="{}"`, r.At), r.Text)
		}))
}
