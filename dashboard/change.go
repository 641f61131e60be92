package dashboard

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/outboxkit/outbox-go/outbox"
)

// maxForm is the longest form, in bytes: maxSelected ids fit.
const maxForm = 128 << 10

// changeFields are the fields of a form that asks for a change.
var changeFields = append([]string{"action", "scope", "id", "of", "number", "typed", "for", "reason", "token", "deletion", "name", "listener", "event_types", "rate"}, filterFields...)

// change is the change that an operator asks for.
type change struct {
	// Action is replay, delete, restore, pause, resume, start-replay, stop-replay, continue-replay, purge or
	// wake.
	Action string
	Target string // as in [httptx.AuditEntry]
	filter outbox.DeadFilter
	Kind   outbox.EventKind // of a pause or a resume
	// AggregateID is the key whose pause is lifted; empty: the kind's
	AggregateID string
	For         time.Duration // of a pause; zero: until it is resumed
	Until       time.Time     // of a pause that was carried out; zero: until it is resumed
	Reason      string        // of a pause
	By          string        // the name of the user
	site        *site
	Replay      outbox.Replay // of delivered events; only its name, if the replay is not to be started
	// DeletionID is of a deletion that was carried out, or that is to be undone.
	DeletionID string
	Fields     url.Values // of the form, for the form that confirms the change
}

// form reads a posted form, and checks its token.
func (p *page) form(scope string) (input, error) {
	if p.r.URL.RawQuery != "" {
		return nil, &inputError{"query", "must be empty for a form"}
	}
	p.r.Body = http.MaxBytesReader(p.w, p.r.Body, maxForm)
	if err := p.r.ParseForm(); err != nil {
		return nil, &inputError{"form", "is too large or malformed"}
	}
	in, err := inputOf(p.r.PostForm, changeFields...)
	if err != nil {
		return nil, err
	}
	return in, p.checkToken(scope, in.get("token"))
}

// change reads which change a form asks for.
func (in input) change() (c change, err error) {
	c.Action = in.get("action")
	switch c.Action {
	case "replay", "delete":
		err = in.selection(&c)
	case "restore":
		if c.DeletionID, c.Target = in.get("deletion"), "deletion="+in.get("deletion"); c.DeletionID == "" {
			return c, &inputError{"deletion", "is empty; give the id of a deletion"}
		}
		err = in.only("deletion", "of")
	case "pause": // typed, so without spaces around it
		in = in.trimmed()
		err = in.pause(&c)
	case "resume":
		c.AggregateID = in.get("aggregate_id")
		if err = in.ofKind(&c, "aggregate_id"); c.AggregateID != "" {
			c.Target += " of " + c.AggregateID
		}
	case "start-replay":
		in = in.trimmed()
		err = in.startReplay(&c)
	case "stop-replay", "continue-replay":
		err = in.ofReplay(&c)
	case "purge":
		c.Target, err = "old rows", in.only()
	case "wake":
		c.Target, err = "the poller", in.only()
	default:
		err = &inputError{"action", "must be replay, delete, restore, pause, resume, start-replay, stop-replay, continue-replay, purge or wake"}
	}
	c.Fields = in.untyped()
	return c, err
}

// untyped are the fields that name the change, without those of its question.
func (in input) untyped() url.Values {
	return in.given(append([]string{"token", "of", "number"}, typedFields...)...)
}

// only refuses fields that do not belong to the action: the change would be wider than the sender
// of the form meant.
func (in input) only(names ...string) error {
	for _, name := range slices.Sorted(maps.Keys(in)) {
		if name != "action" && name != "token" && !slices.Contains(names, name) {
			return &inputError{name, "does not belong to this action; leave it out"}
		}
	}
	return nil
}

// pause reads a pause.
func (in input) pause(c *change) error {
	c.Reason = in.get("reason")
	if i := strings.IndexFunc(c.Reason, unicode.IsControl); i >= 0 {
		return &inputError{"reason", "contains a control character; write a single line"}
	}
	if text := in.get("for"); text != "" {
		var err error
		if c.For, err = time.ParseDuration(text); err != nil || c.For < time.Second {
			return &inputError{"for", "is not a duration from 1s; write it like 30m or 2h, or leave it empty"}
		}
	}
	return in.ofKind(c, "for", "reason")
}

// ofKind reads the kind of events in a form, which may have some other fields.
func (in input) ofKind(c *change, others ...string) error {
	c.Kind = outbox.EventKind{EventType: outbox.EventType(in.get("event_type")), AggregateType: cmp.Or(outbox.AggregateType(in.get("aggregate_type")), outbox.Global)}
	c.Target = c.Kind.String()
	if c.Kind.EventType == "" {
		return &inputError{"event_type", "is empty; name the type of the events"}
	}
	return in.only(append(others, "event_type", "aggregate_type")...)
}

// selection reads the selection of dead letters in a form.
func (in input) selection(c *change) (err error) {
	switch ids := in["id"]; {
	case in.get("scope") == "selection" && len(ids) == 0:
		return &inputError{"id", "is missing; check at least one dead letter"}
	case in.get("scope") == "selection":
		if slices.Contains(ids, "") {
			return &inputError{"id", "is empty; give the id of a dead letter"}
		}
		c.filter.EventIDs, c.Target = ids, "event_id="+strings.Join(ids, ",")
		return in.only("scope", "id", "of", "number", "typed")
	case in.get("scope") != "all":
		return &inputError{"scope", "must be selection or all"}
	default:
		if c.filter, err = in.filter(); err != nil {
			return err
		}
		c.Target = in.target()
		return in.only(append([]string{"scope", "of", "number", "typed"}, filterFields...)...)
	}
}

// target returns a filter as a text. The tenant's name stays out of logs.
func (in input) target() string {
	var parts []string
	for _, name := range filterFields {
		switch value := in.get(name); {
		case value == "":
		case name == "tenant_id":
			parts = append(parts, name+"=…")
		default:
			parts = append(parts, name+"="+url.QueryEscape(value))
		}
	}
	return cmp.Or(strings.Join(parts, "&"), "all")
}

// carryOut makes a change, and returns the number of events that it changed.
func (c *change) carryOut(ctx context.Context, d *Dashboard, ob *outbox.Outbox, progress func(int)) (int, error) {
	switch c.Action {
	case "pause", "resume", "start-replay", "stop-replay", "continue-replay": // short, and harmless to repeat
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d.config.Timeout)
		defer cancel()
	}
	switch c.Action {
	case "replay":
		return ob.DeadLetters().ReplayAll(ctx, c.filter, 0, outbox.OnProgress(progress))
	case "delete":
		d, err := ob.DeadLetters().DeleteAll(ctx, c.filter, 0, outbox.OnProgress(progress))
		c.DeletionID = d.ID
		return d.Count, err
	case "restore":
		n, err := ob.DeadLetters().Restore(ctx, c.DeletionID, outbox.OnProgress(progress))
		if errors.Is(err, outbox.ErrNotFound) {
			err = &problem{http.StatusNotFound, "Nothing to restore", "No dead letter of this deletion can be restored: they are restored already, a purge deleted them, or there was no such deletion."}
		}
		return n, err
	case "pause":
		pause := outbox.Pause{Kind: c.Kind, Reason: c.Reason, By: c.By}
		if c.For > 0 {
			c.Until = time.Now().Add(c.For)
			pause.Until = c.Until
		}
		return 0, ob.Pause(ctx, pause)
	case "resume":
		if c.AggregateID != "" {
			return 0, ob.ResumeKey(ctx, c.Kind, c.AggregateID)
		}
		return 0, ob.Resume(ctx, c.Kind)
	case "start-replay":
		c.Replay.By = c.By
		return 0, replayProblem(ob.StartReplay(ctx, c.Replay))
	case "stop-replay":
		return 0, replayProblem(ob.StopReplay(ctx, c.Replay.Name))
	case "continue-replay":
		return 0, replayProblem(ob.ContinueReplay(ctx, c.Replay.Name))
	case "purge":
		return ob.Purge(ctx)
	default:
		ob.Wake() // which also notifies other processes, if there is a notifier
		return 0, c.site.sampler.noPoller(ctx)
	}
}

// noPoller returns why a wake reached no poller of this process, or nil.
func (s *sampler) noPoller(ctx context.Context) error {
	select {
	case <-s.outbox.Closing():
		return noPollerProblem("the outbox is closed, or closes now")
	default:
	}
	now, err := s.recent(ctx)
	switch {
	case err != nil:
		return err
	case now.Stats.PollInterval == 0:
		return noPollerProblem("the outbox only writes here, because its mode is WriterOnly or it has no listener")
	case now.Stats.LastPoll.IsZero():
		return noPollerProblem("the outbox is not started, or this process is a standby that waits until it may deliver")
	}
	return nil
}

func noPollerProblem(reason string) error {
	return &problem{http.StatusConflict, "Not woken", "This process has no poller to wake: " + reason + ". With Config.Notifier, the processes that deliver were notified."}
}

// act makes a change, and redirects to the page that shows the outcome.
func (p *page) act() error {
	in, err := p.form("act")
	if err != nil {
		return err
	}
	c, err := in.change()
	if err == nil {
		err = in.typed()
	}
	var wrong *inputError
	if errors.As(err, &wrong) && slices.Contains(typedFields, wrong.name) {
		return p.ask(input(in.untyped()), in, wrong)
	}
	if err != nil {
		return err
	}
	c.By, c.site = p.User, p.site
	of, err := in.number("of")
	if err != nil {
		return err
	}
	id, err := p.dashboard.actions.start(p, &c, of)
	if err != nil {
		return err
	}
	return p.redirect(http.StatusSeeOther, string(link("action", "id", id)))
}
