package httptx

import (
	"time"

	"github.com/outboxkit/outbox-go/internal/operjson"
	"github.com/outboxkit/outbox-go/outbox"
)

// node is an [outbox.Node] in JSON.
type node struct {
	Owner       string     `json:"owner"`
	Mode        string     `json:"mode,omitempty"`
	Version     string     `json:"version,omitempty"`
	Problem     string     `json:"problem,omitempty"`
	Live        bool       `json:"live"`
	Holds       bool       `json:"holds"`
	Started     *time.Time `json:"started,omitempty"`
	LastPoll    *time.Time `json:"last_poll,omitempty"`
	SeenAt      *time.Time `json:"seen_at,omitempty"`
	HotDepth    int        `json:"hot_depth"`
	ColdDepth   int        `json:"cold_depth"`
	Leases      int        `json:"leases"`
	OldestLease *time.Time `json:"oldest_lease,omitempty"`
	// Kinds have a listener in the node; left out: not known.
	Kinds   []operjson.Kind `json:"kinds,omitzero"`
	Unheard []operjson.Kind `json:"unheard,omitempty"`
	// Log is of a node that publishes the rows from the database's log; left out: the node does not.
	Log *operjson.LogLag `json:"log,omitempty"`
}

type nodes struct {
	Nodes []node `json:"nodes"`
}

func (a *admin) nodes(c *call, _ parameters) (any, error) {
	list, err := a.outbox.Nodes(c.Context())
	answer := nodes{Nodes: make([]node, len(list))}
	for i := range list {
		n := &list[i]
		answer.Nodes[i] = node{
			Owner: n.Owner, Mode: n.Mode, Version: n.Version, Problem: n.Problem, Live: n.Live, Holds: n.Holds, Started: given(n.Started), LastPoll: given(n.LastPoll),
			SeenAt: given(n.SeenAt), HotDepth: n.HotDepth, ColdDepth: n.ColdDepth, Leases: n.Leases, OldestLease: given(n.OldestLease),
			Kinds: operjson.Kinds(n.Kinds), Unheard: operjson.Kinds(n.Unheard), Log: operjson.LogLagOf(n.Log),
		}
	}
	return answer, err
}

func (a *admin) shares(c *call, _ parameters) (any, error) {
	list, err := a.outbox.Shares(c.Context())
	return operjson.SharesOf(list), err
}

func (a *admin) audit(c *call, p parameters) (any, error) {
	limit, err := p.limit()
	if err != nil {
		return nil, err
	}
	page, err := a.outbox.Audit(c.Context(), outbox.AuditQuery{After: p["after"], Limit: limit})
	return operjson.AuditOf(page), err
}

// group is an [outbox.DeadGroup] in JSON.
type group struct {
	ID            string               `json:"group"`
	EventType     outbox.EventType     `json:"event_type"`
	AggregateType outbox.AggregateType `json:"aggregate_type"`
	Listener      string               `json:"listener,omitempty"`
	Reason        string               `json:"reason"`
	Count         int                  `json:"count"`
	First         time.Time            `json:"first"`
	Last          time.Time            `json:"last"`
	Example       string               `json:"example"`
}

type groups struct {
	Groups []group `json:"groups"`
	More   bool    `json:"more"`
}

func (a *admin) groups(c *call, p parameters) (any, error) {
	filter, err := p.filter()
	if err != nil {
		return nil, err
	}
	found, more, err := a.dead.Groups(c.Context(), filter)
	answer := groups{Groups: make([]group, len(found)), More: more}
	for i := range found {
		g := &found[i]
		answer.Groups[i] = group{
			ID: g.ID, EventType: g.Kind.EventType, AggregateType: g.Kind.AggregateType, Listener: g.Kind.Listener,
			Reason: g.Reason, Count: g.Count, First: g.First.UTC(), Last: g.Last.UTC(), Example: g.Example,
		}
	}
	return answer, err
}

func (a *admin) purge(c *call, _ parameters) (_ any, err error) {
	c.target = "old rows"
	c.count, err = a.outbox.Purge(c.Context())
	return deleted{Deleted: c.count}, err
}

func (a *admin) wake(c *call, _ parameters) (any, error) {
	c.target = "the poller"
	a.outbox.Wake()
	return nil, nil
}
