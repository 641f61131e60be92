package dashboard

import (
	"context"
	"net/http"
	"slices"

	"github.com/outboxkit/outbox-go/internal/verdict"
	"github.com/outboxkit/outbox-go/outbox"
)

// confirmation is a change that the user is asked to confirm.
type confirmation struct {
	change
	Letters bool // the change is about dead letters
	// Restorable says how long the letters of a deletion can be restored.
	Restorable string
	Count      int64
	More       bool // there may be more than Count
	Looked     int  // among how many dead letters Count was counted, if More
	facts
	ByKey bool // a process delivers in the order of keys
	// Unknown says that no event of the kind to pause was found; Similar are kinds that the
	// user may have meant.
	Unknown bool
	Similar []outbox.EventKind
	// Pause is the pause that a resume ends; zero: nothing is paused. Count are then the events that wait for
	// its end.
	Pause outbox.Pause
	// Typed has the values that the user typed into the form of the question, and Wrong names the wrong value; nil:
	// the question is asked for the first time.
	Typed input
	Wrong error
}

// typedFields are the fields of questions into which a user types.
var typedFields = []string{"typed", "for", "reason"}

// confirm asks whether a change shall be made, and says how many events the change is about.
func (p *page) confirm() error {
	in, err := p.form("confirm")
	if err != nil {
		return err
	}
	return p.ask(in, nil, nil)
}

// ask asks whether a change shall be made; again, if the user typed a wrong value.
func (p *page) ask(in, typed input, wrong error) error {
	c, err := in.change()
	if err != nil {
		return err
	}
	ctx, cancel := p.context()
	defer cancel()
	asked := confirmation{change: c, Typed: typed, Wrong: wrong, Letters: c.Action == "replay" || c.Action == "delete" || c.Action == "restore", Restorable: verdict.Restorable(p.outbox)}
	switch {
	case c.Action == "restore":
		asked.Count, err = p.outbox.DeadLetters().Restorable(ctx, c.DeletionID, 0)
		asked.More = asked.Count == outbox.StatsLimit
		if err == nil {
			asked.facts, err = p.deletedFacts(ctx, c.DeletionID)
		}
	case asked.Letters:
		if asked.Count, asked.More, asked.Looked, err = p.size(ctx, &c.filter); err == nil {
			asked.facts, err = p.facts(ctx, &c.filter)
		}
	case c.Action == "resume":
		asked.Pause, asked.Count, asked.More, err = p.pauseAndEvents(ctx, &c)
	case c.Action == "pause":
		asked.Unknown, asked.Similar, err = p.unknown(ctx, c.Kind)
	}
	if err == nil && asked.Letters {
		var now sample
		now, err = p.site.sampler.recent(ctx)
		asked.ByKey = now.byKey()
	}
	if err != nil {
		return err
	}
	status := http.StatusOK
	if wrong != nil {
		status = http.StatusBadRequest
	}
	return p.show(status, "Confirm", p.confirmBody(&asked))
}

func (p *page) confirmBody(c *confirmation) markup {
	back, number := address("steering"), ""
	if c.Letters {
		back, number = "dead", count(c.Count)+choose(c.More, " or more", "")
		if ids := c.filter.EventIDs; len(ids) == 1 {
			back = link("event", "id", ids[0])
		}
	}
	var alert markup
	if c.Wrong != nil {
		alert = wrong(c.Wrong)
	}
	return tags(`{}{}
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
		p.question(c, number), alert, cut(c.Target, 1000), p.token("act"),
		when(c.Letters && !c.More, `<input type="hidden" name="of" value="{}">`, c.Count), hidden(c.Fields), when(c.Action == "pause", `{}`, pauseFields(c.Typed))+when(c.Action == "start-replay", `{}`, replayReason(c.Typed)), c.typeNumber(), choose(c.Action == "delete" || c.Action == "purge", "primary danger", "primary"), c.Action, when(c.Letters, ` {}`, number), back)
}

func (p *page) question(c *confirmation, number string) markup {
	switch {
	case c.Action == "restore":
		return tags(`<p class="question">Restore <strong>{}</strong> dead {}?</p>
<p>They become dead letters again, with the time of death, the error and the attempts that they had. What was delivered since the deletion stays delivered.</p>
{}{}`, number, choose(c.Count == 1, "letter", "letters"), when(c.ByKey, `{}`, undoneByKey), c.list())
	case c.Letters:
		replay := c.Action == "replay"
		return tags(`<p class="question">{} <strong>{}</strong> dead {}?</p>
{}<p>{}</p>
{}{}`, choose(replay, "Replay", "Delete"), number, choose(c.Count == 1, "letter", "letters"),
			when(c.More && c.Looked > 0, `<p class="note" role="status">Counted among {} dead letters. Dead letters beyond them are included in the change, but not counted.</p>
`, count(c.Looked)),
			choose(replay, "Each is delivered again, and its attempts count from 0. What its listener did before may happen again.", "The deletion can be undone: a deleted letter can be restored "+c.Restorable+"."),
			when(c.ByKey && replay, `<p class="note">A process delivers in the order of keys: a replayed letter is delivered before the events that wait in its key, and after the events of the key that were delivered already.</p>
`)+when(c.ByKey && !replay, `{}`, deletedByKey), c.list())
	case c.Action == "purge":
		kept, purges := p.outbox.Retention()
		return tags(`<p class="question">Delete all events that were delivered or died longer ago than {}, now?</p>
<p>Dead letters are deleted too, and nothing can be undone. A kind may have a retention of its own. The same happens by itself at the purge's interval.</p>
`, choose(purges, verdict.Span(kept), "the retention"))
	case c.Action == "pause":
		return tags(`<p class="question">Pause {} for all its listeners?</p>
{}
<p>All processes stop delivering this kind. New events are still written; they are delivered when the pause ends.</p>
`, kindText(c.Kind), p.unknownKind(c))
	case c.Action == "resume" && c.Pause.Since.IsZero():
		return tags(`<p class="question">{} is not paused any more.</p>
`, pauseText(outbox.Pause{Kind: c.Kind, AggregateID: c.AggregateID}))
	case c.Action == "resume":
		return tags(`<p class="question">Resume {}?</p>
<p>It is {}</p>
<p>Events that are due and wait for the end of the pause: <strong>{}{}</strong>. All processes deliver again.</p>
`, pauseText(c.Pause), prose(verdict.Pause(&c.Pause)), count(c.Count), choose(c.More, " or more", ""))
	case c.Replay.Name != "":
		return replayQuestion(&c.change)
	default:
		return tags(`<p class="question">{} {}?</p>
`, c.Action, c.Target)
	}
}

// pauseFields ask how long a pause lasts, and why.
func pauseFields(typed input) markup {
	return tags(`<label>For <input name="for" maxlength="20" placeholder="2h; empty: until somebody resumes it" list="pause-times" autocomplete="off" value="{}"></label>
<datalist id="pause-times"><option value="15m"></option><option value="1h"></option><option value="8h"></option></datalist>
<label>Reason <input name="reason" maxlength="{}" autocomplete="off" value="{}"></label>`, typed.get("for"), outbox.MaxPauseReason, typed.get("reason"))
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

// pauseAndEvents finds the pause that a resume ends, and counts the events that wait for its end, up to
// [outbox.MaxFindLimit].
func (p *page) pauseAndEvents(ctx context.Context, c *change) (pause outbox.Pause, n int64, more bool, err error) {
	pauses, err := p.outbox.Paused(ctx)
	i := slices.IndexFunc(pauses, func(at outbox.Pause) bool { return at.Kind == c.Kind && at.AggregateID == c.AggregateID })
	if err != nil || i < 0 {
		return outbox.Pause{}, 0, false, err
	}
	query := outbox.EventQuery{Limit: outbox.MaxFindLimit}
	query.Statuses, query.DueBefore = []outbox.Status{outbox.StatusNew, outbox.StatusRetry}, p.Now
	query.EventType, query.AggregateType, query.AggregateID = c.Kind.EventType, c.Kind.AggregateType, c.AggregateID
	found, err := p.outbox.FindEvents(ctx, query)
	return pauses[i], int64(len(found.Rows)), found.Next != "", err
}

// size counts the dead letters of a filter. If there may be more, looked is how many dead letters it looked
// at, or zero if all of these are counted: [outbox.GroupLimit] of a filter, and [outbox.StatsLimit] without a
// filter.
func (p *page) size(ctx context.Context, f *outbox.DeadFilter) (n int64, more bool, looked int, err error) {
	sampler := p.site.sampler
	isWide := f.EventType == "" && f.AggregateType == "" && f.AggregateID == "" && f.TenantID == "" && f.Since.IsZero() && f.Until.IsZero()
	switch {
	case f.EventIDs != nil:
		n, err = p.outbox.DeadLetters().Count(ctx, *f)
		return n, false, 0, err
	case f.Group != "" && isWide:
		groups, err := sampler.deadGroups(ctx)
		if i := slices.IndexFunc(groups.list, func(g outbox.DeadGroup) bool { return g.ID == f.Group }); i >= 0 {
			n = int64(groups.list[i].Count)
		}
		return n, groups.more, outbox.GroupLimit, err
	case f.Group != "":
		groups, more, err := p.outbox.DeadLetters().Groups(ctx, *f)
		for _, g := range groups {
			n += int64(g.Count)
		}
		return n, more, outbox.GroupLimit, err
	case isWide:
		now, err := sampler.recent(ctx)
		return now.Stats.Dead, now.Stats.Dead >= outbox.StatsLimit, 0, err
	}
	query := outbox.EventQuery{Limit: outbox.MaxFindLimit}
	query.Statuses, query.Since, query.Until = []outbox.Status{outbox.StatusDead}, f.Since, f.Until
	query.EventType, query.AggregateType, query.AggregateID, query.TenantID = f.EventType, f.AggregateType, f.AggregateID, f.TenantID
	for pages := outbox.GroupLimit / outbox.MaxFindLimit; pages > 0 && looked < outbox.GroupLimit; pages-- {
		found, err := p.outbox.FindEvents(ctx, query)
		if n += int64(len(found.Rows)); err != nil || found.Next == "" {
			return n, false, 0, err
		}
		looked += found.Looked
		query.After = found.Next
	}
	return n, true, looked, nil
}
