package dashboard

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"strings"

	"github.com/outboxkit/outbox-go/outbox"
)

// maxForm is the longest form, in bytes: maxSelected ids fit.
const maxForm = 128 << 10

// changeFields are those of a form that asks for a change.
var changeFields = append([]string{"action", "scope", "id", "of", "token"}, filterFields...)

// change is what an operator asks for.
type change struct {
	Action string // replay, delete, pause, resume, purge or wake
	Target string // as in [httptx.AuditEntry]
	filter outbox.DeadFilter
	kind   outbox.EventKind
	Fields url.Values // of the form, for the one that confirms it
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

// change reads what a form asks for.
func (in input) change() (c change, err error) {
	c.Action, c.Fields = in.get("action"), in.given("token", "of")
	switch c.Action {
	case "replay", "delete":
		return c, in.selection(&c)
	case "pause", "resume":
		c.kind = outbox.EventKind{EventType: outbox.EventType(in.get("event_type")), AggregateType: cmp.Or(outbox.AggregateType(in.get("aggregate_type")), outbox.Global)}
		c.Target = c.kind.String()
		if c.kind.EventType == "" {
			return c, &inputError{"event_type", "is empty; name the type of the events"}
		}
	case "purge":
		c.Target = "old rows"
	case "wake":
		c.Target = "the poller"
	default:
		return c, &inputError{"action", "must be replay, delete, pause, resume, purge or wake"}
	}
	return c, nil
}

// selection reads which dead letters a form is about.
func (in input) selection(c *change) (err error) {
	switch ids := in["id"]; {
	case in.get("scope") == "selection" && len(ids) == 0:
		return &inputError{"id", "is missing; check at least one dead letter"}
	case in.get("scope") == "selection":
		c.filter.EventIDs, c.Target = ids, "event_id="+strings.Join(ids, ",")
	case in.get("scope") != "all":
		return &inputError{"scope", "must be selection or all"}
	case len(ids) > 0:
		return &inputError{"id", "is given, and scope is all"}
	default:
		c.filter, err = in.filter()
		c.Target = in.target()
	}
	return err
}

// target is a filter as a text. The tenant's name stays out of logs.
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

// carryOut makes a change, and returns how many events it changed.
func (c *change) carryOut(ctx context.Context, ob *outbox.Outbox, progress func(int)) (int, error) {
	switch c.Action {
	case "replay":
		return ob.DeadLetters().ReplayAll(ctx, c.filter, 0, outbox.OnProgress(progress))
	case "delete":
		return ob.DeadLetters().DeleteAll(ctx, c.filter, 0, outbox.OnProgress(progress))
	case "pause":
		return 0, ob.Pause(ctx, c.kind)
	case "resume":
		return 0, ob.Resume(ctx, c.kind)
	case "purge":
		return ob.Purge(ctx)
	default:
		ob.Wake()
		return 0, nil
	}
}

// confirm asks whether a change shall be made, and says how many events it is about.
func (p *page) confirm() error {
	in, err := p.form("confirm")
	if err != nil {
		return err
	}
	c, err := in.change()
	if err != nil {
		return err
	}
	data := struct {
		change
		Letters bool // it is about dead letters
		Count   int64
		More    bool
	}{change: c, Letters: c.Action == "replay" || c.Action == "delete"}
	if data.Letters {
		ctx, cancel := p.context()
		defer cancel()
		if data.Count, data.More, err = p.size(ctx, &c.filter); err != nil {
			return err
		}
	}
	return p.show(http.StatusOK, "confirm.html", "Confirm", data)
}

// size counts the dead letters of a filter; more says that there may be more.
func (p *page) size(ctx context.Context, f *outbox.DeadFilter) (n int64, more bool, err error) {
	dead := p.outbox.DeadLetters()
	if f.Group == "" {
		n, err = dead.Count(ctx, *f)
		return n, false, err
	}
	groups, err := dead.Groups(ctx, *f) // it reads no more than GroupLimit
	for _, g := range groups.Groups {
		n += int64(g.Count)
	}
	return n, groups.More, err
}

// act makes a change, and goes on to the page that shows what became of it.
func (p *page) act() error {
	in, err := p.form("act")
	if err != nil {
		return err
	}
	c, err := in.change()
	if err != nil {
		return err
	}
	of, err := in.number("of")
	if err != nil {
		return err
	}
	id, err := p.dashboard.actions.start(p, &c, of)
	if err != nil {
		return err
	}
	return p.redirect(http.StatusSeeOther, link("action", "id", id))
}
