package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outboxkit/outbox-go/internal/operjson"
	"github.com/outboxkit/outbox-go/outbox"
)

func (a *app) nodes() *cobra.Command {
	return &cobra.Command{
		Use: "nodes", Short: "Lists the processes that deliver or write, and their leases", Args: takesNothing,
		Long: "Lists the processes that deliver or write, and their leases. A process reports every ten seconds. One\nthat missed three reports is dead, and is listed for an hour.",
		RunE: a.with(func(ctx context.Context, c *client, _ []string) error {
			list, err := c.ob.Nodes(ctx)
			if err != nil {
				return err
			}
			answer := map[string][]node{"nodes": {}}
			for _, n := range list {
				answer["nodes"] = append(answer["nodes"], node{
					Owner: n.Owner, Mode: n.Mode, Version: n.Version, Problem: n.Problem, Live: n.Live, Holds: n.Holds, Started: n.Started.UTC(), LastPoll: n.LastPoll.UTC(),
					SeenAt: n.SeenAt.UTC(), HotDepth: n.HotDepth, ColdDepth: n.ColdDepth, Leases: n.Leases, OldestLease: n.OldestLease.UTC(),
					Kinds: operjson.Kinds(n.Kinds), Unheard: operjson.Kinds(n.Unheard), Log: operjson.LogLagOf(n.Log),
				})
			}
			return a.print(answer, func(t *table) {
				t.row("NODE", "VERSION", "MODE", "STATE", "HOLDS", "STARTED", "LAST POLL", "SEEN", "QUEUED", "LEASES", "OLDEST LEASE", "WITHOUT A LISTENER")
				for _, n := range answer["nodes"] {
					t.row(n.Owner, n.Version, n.Mode, n.state(), n.Holds, n.Started, n.LastPoll, n.SeenAt, n.HotDepth+n.ColdDepth, n.Leases, n.OldestLease, names(n.Unheard))
				}
			})
		}),
	}
}

// names lists a few kinds.
func names(kinds []operjson.Kind) string {
	const most = 3
	var list []string
	for _, k := range kinds[:min(len(kinds), most)] {
		list = append(list, outbox.EventKind{AggregateType: k.AggregateType, EventType: k.EventType}.String())
	}
	if more := len(kinds) - most; more > 0 {
		list = append(list, fmt.Sprintf("%d more", more))
	}
	return strings.Join(list, ", ")
}

// state says whether the process is live, or why its report cannot be read. The state of a process
// that has leases but does not report is unknown.
func (n node) state() string {
	switch {
	case n.Problem != "":
		return n.Problem
	case n.Live:
		return "live"
	case n.SeenAt.IsZero():
		return "unknown"
	default:
		return "dead"
	}
}
