package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outboxkit/outbox-go/internal/operjson"
	"github.com/outboxkit/outbox-go/outbox"
)

func (a *app) replay() *cobra.Command {
	return groupOf("replay", "Delivers delivered events again, to one listener", a.replayStart(), a.replayList(), a.replayStop(), a.replayContinue())
}

// replayFields are the flags for the fields of a replay that package outbox refuses.
var replayFields = map[string]string{
	"Replay.Name": "NAME", "Replay.Listener": "--listener", "Replay.EventTypes": "--event-type", "Replay.AggregateType": "--aggregate-type",
	"Replay.AggregateID": "--aggregate-id", "Replay.TenantID": "--tenant", "Replay.Since": "--since", "Replay.Until": "--until",
	"Replay.Rate": "--rate", "Replay.Reason": "--reason",
}

func (a *app) replayStart() *cobra.Command {
	var f filter
	var types []string
	var listener, reason string
	var rate int
	var dryRun, yes bool
	cmd := &cobra.Command{
		Use: "start NAME", Short: "Starts a replay of delivered events to one listener", Args: takes(1, 1, "one name"),
		Long: `Starts a replay: events that were delivered are delivered again, to the listener that
--listener names and to no other. The processes that deliver carry the replay out, with at
most --rate events in a second; outbox replay list shows how far it is.

The events come from the DONE rows of the table: what a purge has deleted is not replayed.
--since and --until are about the time of delivery. Without --until, it is now.

For dead letters, use outbox dead replay.`,
		Example: "  outbox replay start new-index --listener search --event-type OrderPlaced --aggregate-type Order --since 24h",
		RunE: a.changes(func(ctx context.Context, c *client, args []string) error {
			since, until, err := f.check(c.now())
			if err != nil {
				return err
			}
			r := outbox.Replay{
				Name: args[0], Listener: listener, AggregateType: outbox.AggregateType(f.aggregateType), AggregateID: f.aggregateID, TenantID: f.tenantID,
				Since: since, Until: until, Rate: rate, Reason: reason, By: operator(),
			}
			for _, eventType := range types {
				r.EventTypes = append(r.EventTypes, outbox.EventType(eventType))
			}
			if err := r.Validate(); err != nil {
				return wrongField(err, replayFields)
			}
			what := fmt.Sprintf("replay delivered events of %s to the listener %s", kindsText(r.AggregateType, r.EventTypes), listener)
			if !dryRun {
				if !yes {
					if err := a.ask(ctx, what); err != nil {
						return err
					}
				}
				if err := a.warnUnrecorded(c.ob.StartReplay(ctx, r)); err != nil {
					return wrongField(err, replayFields)
				}
			}
			return a.printReplay(r.Name, "start", "started", !dryRun, dryRun)
		}),
	}
	cmd.Flags().StringArrayVar(&types, "event-type", nil, "the type of the events; may be given several times")
	cmd.Flags().StringVar(&listener, "listener", "", "the name of the listener, as outbox.Named gives it")
	cmd.Flags().StringVar(&f.aggregateType, "aggregate-type", "", "the aggregate type; without it, events that name none")
	cmd.Flags().StringVar(&f.aggregateID, "aggregate-id", "", "only events of this aggregate")
	cmd.Flags().StringVar(&f.tenantID, "tenant", "", "only events of this tenant")
	cmd.Flags().StringVar(&f.since, "since", "", "only events delivered at this time or later: 2006-01-02T15:04:05Z, or 2h for two hours ago")
	cmd.Flags().StringVar(&f.until, "until", "", "only events delivered before this time, as for --since")
	cmd.Flags().IntVar(&rate, "rate", outbox.DefaultReplayRate, fmt.Sprintf("how many events in a second, at most %d", outbox.MaxReplayRate))
	cmd.Flags().StringVar(&reason, "reason", "", "why, for other operators")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "check the flags, change nothing")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

// kindsText names the types of a replay.
func kindsText(aggregateType outbox.AggregateType, types []outbox.EventType) string {
	texts := make([]string, len(types))
	for i, eventType := range types {
		texts[i] = string(eventType)
	}
	if aggregateType == "" {
		aggregateType = outbox.Global
	}
	return kindText(aggregateType, outbox.EventType(strings.Join(texts, ", ")))
}

func (a *app) printReplay(name, verb, past string, changed, dryRun bool) error {
	answer := struct {
		Name    string `json:"name"`
		Changed bool   `json:"changed"`
		DryRun  bool   `json:"dry_run,omitempty"`
	}{name, changed, dryRun}
	return a.print(answer, func(t *table) {
		if dryRun {
			t.row("would " + verb + " replay " + name)
		} else {
			t.row(past + " replay " + name)
		}
	})
}

func (a *app) replayList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "Lists the replays of delivered events, and how far they are", Args: takesNothing,
		Long: `Lists the replays of delivered events, the replay that started last first. PLACE is the time
of delivery up to which events were added for the listener. A replay adds no further events
while WAITING events have not been tried: the listener is slow or paused. A replay that runs and
adds no events at all waits for a process that has the listener for all its event types.
Of the events that were added last, FAILED have failed; LAST ERROR is the error of one of them.`,
		RunE: a.with(func(ctx context.Context, c *client, _ []string) error {
			list, err := c.ob.Replays(ctx)
			if err != nil {
				return err
			}
			return a.print(operjson.ReplaysOf(list), func(t *table) {
				t.row("NAME", "STATE", "LISTENER", "TYPES", "SINCE", "UNTIL", "PLACE", "ADDED", "WAITING", "FAILED", "BY", "REASON", "LAST ERROR")
				for i := range list {
					r := &list[i]
					if r.Problem != "" {
						t.row("", "", "", "", "", "", "", "", "", "", "", "", r.Problem)
						continue
					}
					t.row(r.Name, string(r.State), r.Listener, kindsText(r.AggregateType, r.EventTypes), r.Since, r.Until, r.Place, r.Added, r.Waiting, r.Failed, r.By, r.Reason, r.LastError)
				}
			})
		}),
	}
}

func (a *app) replayStop() *cobra.Command {
	return a.replayChange("stop", "stopped", "Stops a replay of delivered events",
		"Stops a replay of delivered events. The events that were added are still delivered.\noutbox replay continue goes on with the replay.", (*outbox.Outbox).StopReplay)
}

func (a *app) replayContinue() *cobra.Command {
	return a.replayChange("continue", "continued", "Continues a replay of delivered events that was stopped",
		"Continues a replay of delivered events where it was stopped.", (*outbox.Outbox).ContinueReplay)
}

// replayChange is a command that changes the state of a replay.
func (a *app) replayChange(verb, past, short, long string, change func(*outbox.Outbox, context.Context, string) error) *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use: verb + " NAME", Short: short, Long: long, Args: takes(1, 1, "one name"), Example: "  outbox replay " + verb + " new-index",
		RunE: a.changes(func(ctx context.Context, c *client, args []string) error {
			list, err := c.ob.Replays(ctx)
			if err != nil {
				return err
			}
			from := map[string]outbox.ReplayState{"stop": outbox.ReplayRunning, "continue": outbox.ReplayStopped}[verb]
			var found *outbox.ReplayStatus
			for i := range list {
				if list[i].Problem == "" && list[i].Name == args[0] {
					found = &list[i]
				}
			}
			if found == nil {
				return missing("there is no replay of this name; outbox replay list has the names")
			}
			if !dryRun {
				if err := a.warnUnrecorded(change(c.ob, ctx, args[0])); err != nil {
					return wrongField(err, replayFields)
				}
			}
			return a.printReplay(args[0], verb, past, found.State == from && !dryRun, dryRun)
		}),
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "change nothing")
	return cmd
}

// replayNames are for the completion of arguments.
func replayNames(ctx context.Context, c *client) (names []string) {
	list, _ := c.ob.Replays(ctx)
	for i := range list {
		names = append(names, list[i].Name)
	}
	return names
}

// wrongField names the flag for a field that package outbox refuses.
func wrongField(err error, flags map[string]string) error {
	var field *outbox.FieldError
	if errors.As(err, &field) && flags[field.Field] != "" {
		return &usageError{flags[field.Field], field.Problem}
	}
	return err
}
