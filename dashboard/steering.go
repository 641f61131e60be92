package dashboard

import (
	"cmp"
	"net/http"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// steering shows the pauses, the forms for steering, the latest actions, and the replays of delivered events.
func (p *page) steering() error {
	if _, err := p.query(); err != nil {
		return err
	}
	ctx, cancel := p.context()
	defer cancel()
	paused, err := p.outbox.Paused(ctx)
	if err != nil {
		return err
	}
	shares, err := p.outbox.Shares(ctx)
	if err != nil {
		return err
	}
	replays, err := p.outbox.Replays(ctx)
	if err != nil {
		return err
	}
	kinds, err := p.kinds(ctx)
	if err != nil {
		return err
	}
	return p.show(http.StatusOK, "Steering", p.steeringBody(paused, kinds)+p.replaysBody(replays)+sharesBody(shares))
}

func (p *page) steeringBody(paused []outbox.Pause, kinds []outbox.EventKind) markup {
	list := tags(`<p class="none">Nothing is paused.</p>`)
	if len(paused) > 0 {
		list = tags(`<div class="wide"><table>
<thead><tr><th scope="col">Kind</th><th scope="col">Since</th><th scope="col">Until</th><th scope="col">Reason</th><th scope="col">By</th>{}</tr></thead>
<tbody>{}</tbody></table></div>
`, when(p.Operates(), `<th scope="col">Action</th>`), each(paused, p.pauseRow))
	}
	return tags(`<section aria-labelledby="paused"><h2 id="paused">Paused kinds of events and keys</h2>
{}
{}
</section>
{}
{}
`, list, when(p.Operates(), `{}`, p.pauseForm(kinds)), when(p.Operates(), `{}`, p.nowForms()), p.recent())
}

func (p *page) pauseRow(pause outbox.Pause) markup {
	kind := pauseText(pause)
	return tags(`<tr><th scope="row" class="text">{}</th><td data-label="Since">{}</td><td data-label="Until">{}</td><td class="text" data-label="Reason">{}</td><td class="text" data-label="By">{}</td>
{}</tr>`, kind, moment(pause.Since), endOf(pause), cmp.Or(pause.Reason, "–"), pausedBy(pause),
		when(p.Operates(), `<td>{}</td>`, p.resume(pause)))
}

// resume is a button that ends a pause; for a user who may not, a link to all pauses.
func (p *page) resume(pause outbox.Pause) markup {
	if !p.Operates() {
		return `<a href="steering">Pauses</a>`
	}
	return tags(`<form method="post" action="confirm">{}{}<button name="action" value="resume" aria-label="Resume {}">Resume …</button></form>`,
		p.token("confirm"), resumeFields(pause), pauseText(pause))
}

// pauseText names the kind that is paused, or the key.
func pauseText(pause outbox.Pause) string {
	if pause.AggregateID == "" {
		return kindText(pause.Kind)
	}
	return pause.AggregateID + " of " + kindText(pause.Kind)
}

// resumeFields are the fields of a form that name the kind, or the key, of a pause.
func resumeFields(pause outbox.Pause) markup {
	return tags(`{}{}`, kindFields(pause.Kind.AggregateType, pause.Kind.EventType),
		when(pause.AggregateID != "", `<input type="hidden" name="aggregate_id" value="{}">`, pause.AggregateID))
}

// endOf is when a pause ends.
func endOf(pause outbox.Pause) markup {
	if pause.Until.IsZero() {
		return "somebody resumes it"
	}
	return moment(pause.Until)
}

// untilOf is when a pause ends, exactly and from now.
func untilOf(until time.Time) markup {
	if until.IsZero() {
		return "somebody resumes it"
	}
	return both(until)
}

// pausedBy says who paused a kind.
func pausedBy(pause outbox.Pause) string {
	if pause.Automatic {
		return "a listener in " + pause.By
	}
	return cmp.Or(pause.By, "an unnamed user")
}

func (p *page) pauseForm(kinds []outbox.EventKind) markup {
	option := func(text string) markup { return tags(`<option value="{}"></option>`, text) }
	return tags(`<form method="post" action="confirm" class="search">
{}
<label>Event type <input name="event_type" maxlength="128" required list="event-types" autocomplete="off"></label>
<label>Aggregate type <input name="aggregate_type" maxlength="64" placeholder="none" list="aggregate-types" autocomplete="off"></label>
<datalist id="event-types">{}</datalist>
<datalist id="aggregate-types">{}</datalist>
<button name="action" value="pause">Pause …</button>
</form>
<p class="help">All processes stop delivering this kind. New events are still written; they are delivered when the pause ends. The next page asks for how long, and why.</p>`,
		p.token("confirm"), each(eventTypes(kinds), option), each(aggregateTypes(kinds), option))
}

// nowForms are the changes that need no choice.
func (p *page) nowForms() markup {
	return tags(`<section aria-labelledby="now"><h2 id="now">Now</h2>
<form method="post" action="act" class="buttons">{}<button name="action" value="wake">Wake the poller</button></form>
<p class="help">A poller that is awake reads the table at once. That helps after rows were changed by hand. Events that wait for a later time or a retry wait on.</p>
<form method="post" action="confirm" class="buttons">{}<button name="action" value="purge" class="danger">Purge old rows …</button></form>
<p class="help">Deletes events that ended longer ago than the retention, dead letters too.</p>
</section>`, p.token("act"), p.token("confirm"))
}
