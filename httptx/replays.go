package httptx

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/outboxkit/outbox-go/internal/operjson"
	"github.com/outboxkit/outbox-go/outbox"
)

// replayParameters choose the events and the listener of a replay of delivered events.
var replayParameters = []string{"name", "listener", "event_types", "aggregate_type", "aggregate_id", "tenant_id", "since", "until", "rate", "reason"}

func (a *admin) replays(c *call, _ parameters) (any, error) {
	list, err := a.outbox.Replays(c.Context())
	return operjson.ReplaysOf(list), err
}

func (a *admin) startReplay(c *call, p parameters) (any, error) {
	since, until, err := p.times()
	if err != nil {
		return nil, err
	}
	r := outbox.Replay{
		Name: p["name"], Listener: p["listener"], AggregateType: outbox.AggregateType(p["aggregate_type"]), AggregateID: p["aggregate_id"], TenantID: p["tenant_id"],
		Since: since, Until: until, Reason: p["reason"], By: c.user,
	}
	if text := p["event_types"]; text != "" {
		for eventType := range strings.SplitSeq(text, ",") {
			r.EventTypes = append(r.EventTypes, outbox.EventType(eventType))
		}
	}
	if text, given := p["rate"]; given {
		if r.Rate, err = strconv.Atoi(text); err != nil || r.Rate < 1 {
			return nil, &parameterError{"rate", fmt.Sprintf("is %.40q; it must be a number from 1 to %d", text, outbox.MaxReplayRate)}
		}
	}
	c.target = "replay=" + url.QueryEscape(r.Name) + "&listener=" + url.QueryEscape(r.Listener)
	if err := a.outbox.StartReplay(c.Context(), r); errors.Is(err, outbox.ErrReplayExists) {
		return nil, &parameterError{"name", "is the name of a replay that exists; choose another name, or continue the replay if it was stopped"}
	} else if err != nil {
		return nil, err
	}
	return nil, nil
}

func (a *admin) stopReplay(c *call, p parameters) (any, error) {
	c.target = "replay=" + url.QueryEscape(p["name"])
	return nil, a.outbox.StopReplay(c.Context(), p["name"])
}

func (a *admin) continueReplay(c *call, p parameters) (any, error) {
	c.target = "replay=" + url.QueryEscape(p["name"])
	return nil, a.outbox.ContinueReplay(c.Context(), p["name"])
}
