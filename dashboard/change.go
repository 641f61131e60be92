package dashboard

import (
	"cmp"
	"context"
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
var changeFields = append([]string{"action", "scope", "id", "of", "number", "typed", "for", "reason", "token"}, filterFields...)

// change is the change that an operator asks for.
type change struct {
	Action string // replay, delete, pause, resume, purge or wake
	Target string // as in [httptx.AuditEntry]
	filter outbox.DeadFilter
	Kind   outbox.EventKind // of a pause or a resume
	// AggregateID is the key whose pause is lifted; empty: the kind's
	AggregateID string
	For         time.Duration // of a pause; zero: until it is resumed
	Reason      string        // of a pause
	By          string        // the user
	Fields      url.Values    // of the form, for the form that confirms the change
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
	case "pause": // typed, so without spaces around it
		in = in.trimmed()
		err = in.pause(&c)
	case "resume":
		c.AggregateID = in.get("aggregate_id")
		if err = in.ofKind(&c, "aggregate_id"); c.AggregateID != "" {
			c.Target += " of " + c.AggregateID
		}
	case "purge":
		c.Target, err = "old rows", in.only()
	case "wake":
		c.Target, err = "the poller", in.only()
	default:
		err = &inputError{"action", "must be replay, delete, pause, resume, purge or wake"}
	}
	c.Fields = in.given("token", "of", "number", "typed", "for", "reason")
	return c, err
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
	if c.Action == "pause" || c.Action == "resume" { // short, and harmless to repeat
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d.config.Timeout)
		defer cancel()
	}
	switch c.Action {
	case "replay":
		return ob.DeadLetters().ReplayAll(ctx, c.filter, 0, outbox.OnProgress(progress))
	case "delete":
		return ob.DeadLetters().DeleteAll(ctx, c.filter, 0, outbox.OnProgress(progress))
	case "pause":
		pause := outbox.Pause{Kind: c.Kind, Reason: c.Reason, By: c.By}
		if c.For > 0 {
			pause.Until = time.Now().Add(c.For)
		}
		return 0, ob.Pause(ctx, pause)
	case "resume":
		if c.AggregateID != "" {
			return 0, ob.ResumeKey(ctx, c.Kind, c.AggregateID)
		}
		return 0, ob.Resume(ctx, c.Kind)
	case "purge":
		return ob.Purge(ctx)
	default:
		ob.Wake()
		return 0, nil
	}
}

// act makes a change, and redirects to the page that shows the outcome.
func (p *page) act() error {
	in, err := p.form("act")
	if err != nil {
		return err
	}
	c, err := in.change()
	if err != nil {
		return err
	}
	if err := in.typed(); err != nil {
		return err
	}
	c.By = p.User
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
