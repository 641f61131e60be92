package dashboard

import (
	"context"
	"net/http"

	"github.com/outboxkit/outbox-go/outbox"
)

// confirmation is a change that the user is asked to confirm.
type confirmation struct {
	change
	Letters bool // the change is about dead letters
	Count   int64
	More    bool // there may be more than Count
	// Examples are the letters of a deletion that died first.
	Examples []outbox.DeadLetter
	// Unknown says that no event of the kind to pause was found; Similar are kinds that the
	// user may have meant.
	Unknown bool
	Similar []outbox.EventKind
}

// confirm asks whether a change shall be made, and says how many events the change is about.
func (p *page) confirm() error {
	in, err := p.form("confirm")
	if err != nil {
		return err
	}
	c, err := in.change()
	if err != nil {
		return err
	}
	ctx, cancel := p.context()
	defer cancel()
	asked := confirmation{change: c, Letters: c.Action == "replay" || c.Action == "delete"}
	switch {
	case asked.Letters:
		if asked.Count, asked.More, err = p.size(ctx, &c.filter); err == nil && c.Action == "delete" {
			asked.Examples, err = p.examples(ctx, &c.filter)
		}
	case c.Action == "pause":
		asked.Unknown, asked.Similar, err = p.unknown(ctx, c.Kind)
	}
	if err != nil {
		return err
	}
	return p.show(http.StatusOK, "Confirm", p.confirmBody(&asked))
}

func (p *page) confirmBody(c *confirmation) markup {
	back, number := address("steering"), ""
	if c.Letters {
		back, number = "dead", count(c.Count)+choose(c.More, " or more", "")
	}
	return tags(`{}
<p class="text">Target: {}</p>
<form method="post" action="act" class="buttons">
{}
{}
{}
{}
{}
<button class="{}">Yes, {}{}</button> <a href="{}">No, go back</a>
</form>
`,
		p.question(c, number), cut(c.Target, 1000), p.token("act"),
		when(c.Letters && !c.More, `<input type="hidden" name="of" value="{}">`, c.Count), hidden(c.Fields), when(c.Action == "pause", `{}`, pauseFields()), c.typeNumber(), choose(c.Action == "delete" || c.Action == "purge", "primary danger", "primary"), c.Action, when(c.Letters, ` {}`, number), back)
}

func (p *page) question(c *confirmation, number string) markup {
	switch {
	case c.Letters:
		replay := c.Action == "replay"
		return tags(`<p class="question">{} <strong>{}</strong> dead {}?</p>
<p>{}</p>
{}`, choose(replay, "Replay", "Delete"), number, choose(c.Count == 1, "letter", "letters"),
			choose(replay, "Each is delivered again, and its attempts count from 0. What its listener did before may happen again.", "They are gone then: nothing brings them back."), deletionFacts(c))
	case c.Action == "purge":
		return `<p class="question">Delete all events that were delivered or died longer ago than the retention, now?</p><p>The retention is PurgeOptions.Retention, 7 days unless the service sets it. The service logs it when it starts. The same happens by itself at the purge's interval.</p>
`
	case c.Action == "pause":
		return tags(`<p class="question">Pause {} for all its listeners?</p>
{}
<p>All processes stop delivering this kind. New events are still written; they are delivered when the pause ends.</p>
`, kindText(c.Kind), p.unknownKind(c))
	default:
		return tags(`<p class="question">{} {}?</p>
`, c.Action, c.Target)
	}
}

// pauseFields ask how long a pause lasts, and why.
func pauseFields() markup {
	return tags(`<label>For <input name="for" maxlength="20" placeholder="until Resume" list="pause-times" autocomplete="off"></label>
<datalist id="pause-times"><option value="15m"></option><option value="1h"></option><option value="8h"></option></datalist>
<label>Reason <input name="reason" maxlength="{}" autocomplete="off"></label>`, outbox.MaxPauseReason)
}

// unknownKind warns that no event of the kind was found, and offers similar kinds.
func (p *page) unknownKind(c *confirmation) markup {
	if !c.Unknown {
		return ""
	}
	aggregate := "with the aggregate type " + string(c.Kind.AggregateType)
	if c.Kind.AggregateType == outbox.Global {
		aggregate = "without an aggregate type"
	}
	return tags(`<p class="note" role="alert">No event was found here that is of the kind {} {}. {}</p>
{}
`, c.Kind.EventType, aggregate, choose(len(c.Similar) > 0, "Did you mean one of these?", "Check how it is spelled."),
		each(c.Similar, func(k outbox.EventKind) markup {
			return tags(`<form method="post" action="confirm" class="buttons">{}{}<button name="action" value="pause">{} …</button></form>`,
				p.token("confirm"), kindFields(k.AggregateType, k.EventType), kindText(k))
		}))
}

// size counts the dead letters of a filter; more says that there may be more. The method looks at
// [outbox.StatsLimit] rows at most.
func (p *page) size(ctx context.Context, f *outbox.DeadFilter) (n int64, more bool, err error) {
	switch {
	case f.EventIDs != nil:
		n, err = p.outbox.DeadLetters().Count(ctx, *f)
		return n, false, err
	case f.Group != "":
		groups, more, err := p.outbox.DeadLetters().Groups(ctx, *f) // reads no more than GroupLimit
		for _, g := range groups {
			n += int64(g.Count)
		}
		return n, more, err
	case f.EventType == "" && f.AggregateType == "" && f.AggregateID == "" && f.TenantID == "" && f.Since.IsZero() && f.Until.IsZero():
		stats, err := p.outbox.Stats(ctx) // the counts end at StatsLimit
		return stats.Dead, stats.Dead >= outbox.StatsLimit, err
	}
	query := outbox.EventQuery{Limit: outbox.MaxFindLimit}
	query.Statuses, query.Since, query.Until = []outbox.Status{outbox.StatusDead}, f.Since, f.Until
	query.EventType, query.AggregateType, query.AggregateID, query.TenantID = f.EventType, f.AggregateType, f.AggregateID, f.TenantID
	for range outbox.StatsLimit / outbox.SearchLimit {
		found, err := p.outbox.FindEvents(ctx, query)
		if n += int64(len(found.Rows)); err != nil || found.Next == "" {
			return n, false, err
		}
		query.After = found.Next
	}
	return n, true, nil
}
