package httptx

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// kindParameters name a kind of event, resumeParameters a kind or a key, pauseParameters a pause of it.
var (
	kindParameters   = []string{"event_type", "aggregate_type"}
	resumeParameters = append([]string{"aggregate_id"}, kindParameters...)
	pauseParameters  = append([]string{"for", "reason"}, resumeParameters...)
)

// pause is an [outbox.Pause] in JSON.
type pause struct {
	EventType     outbox.EventType     `json:"event_type"`
	AggregateType outbox.AggregateType `json:"aggregate_type"`
	AggregateID   string               `json:"aggregate_id,omitempty"`
	Since         time.Time            `json:"since"`
	Until         time.Time            `json:"until,omitzero"`
	Reason        string               `json:"reason,omitempty"`
	By            string               `json:"by,omitempty"`
	Automatic     bool                 `json:"automatic,omitempty"`
}

type pauses struct {
	Pauses []pause `json:"pauses"`
}

func pausesOf(list []outbox.Pause) []pause {
	answer := make([]pause, len(list))
	for i, p := range list {
		answer[i] = pause{p.Kind.EventType, p.Kind.AggregateType, p.AggregateID, p.Since.UTC(), p.Until.UTC(), p.Reason, p.By, p.Automatic}
	}
	return answer
}

// kind returns the kind of event that the parameters name. It refuses an impossible kind.
func (p parameters) kind() (outbox.EventKind, error) {
	kind := outbox.EventKind{AggregateType: cmp.Or(outbox.AggregateType(p["aggregate_type"]), outbox.Global), EventType: outbox.EventType(p["event_type"])}
	if kind.EventType == "" {
		return kind, &parameterError{"event_type", "is required"}
	}
	for name, limit := range map[string]int{"event_type": outbox.MaxEventTypeLength, "aggregate_type": outbox.MaxAggregateTypeLength} {
		if err := p.length(name, limit); err != nil {
			return kind, err
		}
	}
	return kind, nil
}

// until returns the end of a pause that begins now; zero when the parameter is not given.
func (p parameters) until() (time.Time, error) {
	text := p["for"]
	if text == "" {
		return time.Time{}, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < time.Second {
		return time.Time{}, &parameterError{"for", fmt.Sprintf("is %.40q; it must be a duration from 1s, like 30m or 2h", text)}
	}
	return time.Now().Add(d), nil
}

func (a *admin) paused(c *call, _ parameters) (any, error) {
	list, err := a.outbox.Paused(c.Context())
	return pauses{pausesOf(list)}, err
}

func (a *admin) pause(c *call, p parameters) (any, error) {
	kind, err := p.kind()
	if err != nil {
		return nil, err
	}
	for _, name := range kindParameters { // an old pause of such a kind can still be resumed
		if text := p[name]; text != strings.TrimSpace(text) {
			return nil, &parameterError{name, "is blank, or begins or ends with white space; send the exact type"}
		}
	}
	if err := p.length("aggregate_id", outbox.MaxAggregateIDLength); err != nil {
		return nil, err
	}
	asked := outbox.Pause{Kind: kind, AggregateID: p["aggregate_id"], Reason: p["reason"], By: c.user}
	if asked.Until, err = p.until(); err != nil {
		return nil, err
	}
	if asked.AggregateID != "" && asked.Until.IsZero() {
		return nil, &parameterError{"for", "is required with aggregate_id: the events of a key are deferred by this time"}
	}
	c.target = keyText(kind, asked.AggregateID)
	return nil, a.outbox.Pause(c.Context(), asked)
}

func (a *admin) resume(c *call, p parameters) (any, error) {
	kind, err := p.kind()
	if err != nil {
		return nil, err
	}
	id := p["aggregate_id"]
	if err := p.length("aggregate_id", outbox.MaxAggregateIDLength); err != nil {
		return nil, err
	}
	c.target = keyText(kind, id)
	if id != "" {
		return nil, a.outbox.ResumeKey(c.Context(), kind, id)
	}
	return nil, a.outbox.Resume(c.Context(), kind)
}

// keyText names a kind, or a key of the kind, in the log.
func keyText(kind outbox.EventKind, aggregateID string) string {
	if aggregateID == "" {
		return kind.String()
	}
	return kind.String() + " of " + aggregateID
}
