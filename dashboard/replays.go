package dashboard

import (
	"cmp"
	"errors"
	"net/http"
	"strings"
	"unicode"

	"github.com/outboxkit/outbox-go/outbox"
)

// replayFields are the fields of the form that starts a replay of delivered events.
var replayFields = []string{"name", "listener", "event_types", "aggregate_type", "aggregate_id", "tenant_id", "since", "until", "rate"}

// fieldOfReplay names the field of the form for a field that package outbox refuses.
var fieldOfReplay = map[string]string{
	"Replay.Name": "name", "Replay.Listener": "listener", "Replay.EventTypes": "event_types", "Replay.AggregateType": "aggregate_type",
	"Replay.AggregateID": "aggregate_id", "Replay.TenantID": "tenant_id", "Replay.Since": "since", "Replay.Until": "until",
	"Replay.Rate": "rate", "Replay.Reason": "reason",
}

// startReplay reads a replay that is to be started.
func (in input) startReplay(c *change) (err error) {
	r := &c.Replay
	r.Name, r.Listener, r.AggregateType = in.get("name"), in.get("listener"), outbox.AggregateType(in.get("aggregate_type"))
	r.AggregateID, r.TenantID, r.Reason = in.get("aggregate_id"), in.get("tenant_id"), in.get("reason")
	for eventType := range strings.SplitSeq(in.get("event_types"), ",") {
		if eventType = strings.TrimSpace(eventType); eventType != "" {
			r.EventTypes = append(r.EventTypes, outbox.EventType(eventType))
		}
	}
	if i := strings.IndexFunc(r.Reason, unicode.IsControl); i >= 0 {
		return &inputError{"reason", "contains a control character; write a single line"}
	}
	if r.Since, r.Until, err = in.times(); err != nil {
		return err
	}
	if r.Rate, err = in.number("rate"); err != nil {
		return err
	}
	c.Target = "replay=" + r.Name + " listener=" + r.Listener
	var field *outbox.FieldError
	if err := r.Validate(); errors.As(err, &field) && fieldOfReplay[field.Field] != "" {
		return &inputError{fieldOfReplay[field.Field], field.Problem}
	} else if err != nil {
		return err
	}
	return in.only(append([]string{"reason"}, replayFields...)...)
}

// ofReplay reads the name of a replay that is to be stopped or continued.
func (in input) ofReplay(c *change) error {
	if c.Replay.Name = in.get("name"); c.Replay.Name == "" {
		return &inputError{"name", "is empty; give the name of a replay"}
	}
	c.Target = "replay=" + c.Replay.Name
	return in.only("name")
}

// replayProblem explains why a replay cannot be changed.
func replayProblem(err error) error {
	switch {
	case errors.Is(err, outbox.ErrReplayExists):
		return &problem{http.StatusConflict, "Not started", "A replay of this name exists. Choose another name, or continue the replay if it was stopped."}
	case errors.Is(err, outbox.ErrNotFound):
		return &problem{http.StatusNotFound, "No such replay", "There is no replay of this name. A new replay may have displaced it."}
	}
	return err
}

// replaysBody shows the replays of delivered events, and the form that starts a replay.
func (p *page) replaysBody(replays []outbox.ReplayStatus) markup {
	list := tags(`<p class="none">No delivered events are replayed.</p>`)
	if len(replays) > 0 {
		list = tags(`<div class="wide"><table>
<thead><tr><th scope="col">Replay</th><th scope="col">State</th><th scope="col">To the listener</th><th scope="col">Kinds</th><th scope="col">Delivered from</th><th scope="col">Delivered before</th><th scope="col">Came to</th><th scope="col">Added</th><th scope="col">Waiting</th><th scope="col">Failed</th><th scope="col">By</th>{}</tr></thead>
<tbody>{}</tbody></table></div>
`, when(p.Operates(), `<th scope="col">Action</th>`), each(replays, p.replayRow))
	}
	return tags(`<section aria-labelledby="replays"><h2 id="replays">Replays of delivered events</h2>
{}
{}
</section>
`, list, when(p.Operates(), `{}`, p.replayForm()))
}

func (p *page) replayRow(r outbox.ReplayStatus) markup {
	if r.Problem != "" {
		columns := 10
		if p.Operates() {
			columns++
		}
		return tags(`<tr><th scope="row" class="text">–</th><td class="text bad" data-label="State" colspan="{}">{}</td></tr>
`, columns, r.Problem)
	}
	since, came := tags(`the oldest row`), tags(`–`)
	if !r.Since.IsZero() {
		since = moment(r.Since)
	}
	if !r.Place.IsZero() {
		came = moment(r.Place)
	}
	kinds := make([]string, len(r.EventTypes))
	for i, eventType := range r.EventTypes {
		kinds[i] = kindText(outbox.EventKind{AggregateType: r.AggregateType, EventType: eventType})
	}
	by := cmp.Or(r.By, "an unnamed user")
	if r.Reason != "" {
		by += ": " + r.Reason
	}
	return tags(`<tr><th scope="row" class="text">{}</th><td data-label="State">{}</td><td class="text" data-label="To the listener">{}</td><td class="text" data-label="Kinds">{}</td><td data-label="Delivered from">{}</td><td data-label="Delivered before">{}</td><td data-label="Came to">{}</td><td class="number" data-label="Added">{}{}</td><td class="number" data-label="Waiting">{}</td><td class="text" data-label="Failed">{}{}</td><td class="text" data-label="By">{}</td>
{}</tr>
`, r.Name, r.State, r.Listener, strings.Join(kinds, ", "), since, moment(r.Until), came, count(r.Added),
		when(r.Unreadable > 0, `, {} unreadable`, count(r.Unreadable)), count(r.Waiting), count(r.Failed), when(r.LastError != "", `: {}`, r.LastError), by, when(p.Operates(), `<td>{}</td>`, p.replayButton(&r)))
}

// replayButton stops or continues a replay.
func (p *page) replayButton(r *outbox.ReplayStatus) markup {
	action, text := "stop-replay", "Stop"
	switch r.State {
	case outbox.ReplayDone:
		return ""
	case outbox.ReplayStopped:
		action, text = "continue-replay", "Continue"
	case outbox.ReplayRunning:
	}
	return tags(`<form method="post" action="confirm">{}<input type="hidden" name="name" value="{}"><button name="action" value="{}" aria-label="{} the replay {}">{} …</button></form>`,
		p.token("confirm"), r.Name, action, text, r.Name, text)
}

func (p *page) replayForm() markup {
	return tags(`<form method="post" action="confirm" class="search">
{}
<label>Name of the replay <input name="name" maxlength="{}" required autocomplete="off"></label>
<label>Listener <input name="listener" maxlength="64" required autocomplete="off"></label>
<label>Event types, with commas <input name="event_types" maxlength="{}" required list="event-types" autocomplete="off"></label>
<label>Aggregate type <input name="aggregate_type" maxlength="64" placeholder="none" list="aggregate-types" autocomplete="off"></label>
<label>Aggregate id <input name="aggregate_id" maxlength="128" placeholder="all" autocomplete="off"></label>
<label>Tenant <input name="tenant_id" maxlength="64" placeholder="all" autocomplete="off"></label>
<label>Delivered from (UTC) <input name="since" maxlength="40" placeholder="the oldest row" autocomplete="off"></label>
<label>Delivered before (UTC) <input name="until" maxlength="40" placeholder="now" autocomplete="off"></label>
<label>Events in a second <input name="rate" maxlength="10" inputmode="numeric" placeholder="{}" autocomplete="off"></label>
<button name="action" value="start-replay">Replay …</button>
</form>
<p class="help">Delivers events again that were delivered, to the listener of this name and to no other. The name is that of outbox.Named. Rows that a purge has deleted are not replayed. Dead letters are replayed on their own page.</p>`,
		p.token("confirm"), outbox.MaxReplayName, lengths["event_types"], outbox.DefaultReplayRate)
}

// replayQuestion asks whether to change a replay.
func replayQuestion(c *change) markup {
	switch c.Action {
	case "start-replay":
		types := make([]string, len(c.Replay.EventTypes))
		for i, eventType := range c.Replay.EventTypes {
			types[i] = kindText(outbox.EventKind{AggregateType: cmp.Or(c.Replay.AggregateType, outbox.Global), EventType: eventType})
		}
		return tags(`<p class="question">Deliver delivered events of {} again, to the listener {}?</p>
<p>The listener gets them beside new events, {} in a second at most. What it did with them before may happen again. Other listeners get none of them. If no process has a listener of this name, the replay waits.</p>
`, strings.Join(types, ", "), c.Replay.Listener, cmp.Or(c.Replay.Rate, outbox.DefaultReplayRate))
	case "stop-replay":
		return tags(`<p class="question">Stop the replay {}?</p>
<p>No further events are added. The events that were added are delivered. The replay can be continued.</p>
`, c.Replay.Name)
	default:
		return tags(`<p class="question">Continue the replay {}?</p>
<p>It goes on where it was stopped.</p>
`, c.Replay.Name)
	}
}

// replayReason asks why events are replayed.
func replayReason(typed input) markup {
	return tags(`<label>Reason <input name="reason" maxlength="{}" autocomplete="off" value="{}"></label>`, outbox.MaxPauseReason, typed.get("reason"))
}

// replayResult describes the outcome of a change of a replay.
func replayResult(action, target string) markup {
	text := map[string]string{"start-replay": "started", "stop-replay": "stopped", "continue-replay": "continued"}[action]
	return tags(`{}: {}. The page Steering shows how far the replay is.`, target, text)
}
