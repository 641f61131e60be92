package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outboxkit/outbox-go/outbox"
)

func (a *app) paused() *cobra.Command {
	return &cobra.Command{
		Use: "paused", Short: "Lists the types of events that are paused", Args: takesNothing,
		RunE: a.with(func(ctx context.Context, c *client, _ []string) error {
			list, err := c.ob.Paused(ctx)
			if err != nil {
				return err
			}
			answer := map[string][]pauseShape{"pauses": pausesOf(list)}
			return a.print(answer, func(t *table) {
				t.row("AGGREGATE TYPE", "EVENT TYPE", "SINCE")
				for _, p := range list {
					t.row(p.Kind.AggregateType, p.Kind.EventType, p.Since)
				}
			})
		}),
	}
}

func (a *app) pause() *cobra.Command {
	return a.changePause("pause", "paused", "Stops the deliveries of a type of event, in all processes",
		"Stops the deliveries of a type of event, in all processes, until outbox resume. Processes\nfollow when they read the table next: after their poll interval at the latest.",
		true, (*outbox.Outbox).Pause)
}

func (a *app) resume() *cobra.Command {
	return a.changePause("resume", "resumed", "Ends a pause",
		"Ends a pause. The events that stayed in the table are delivered, the oldest first.",
		false, (*outbox.Outbox).Resume)
}

// changePause returns a command that pauses or resumes a kind.
func (a *app) changePause(verb, past, short, long string, pauses bool, change func(*outbox.Outbox, context.Context, outbox.EventKind) error) *cobra.Command {
	var aggregateType string
	var dryRun bool
	cmd := &cobra.Command{
		Use: verb + " EVENT_TYPE", Short: short, Long: long, Args: takes(1, 1, "one event type"),
		Example: "  outbox " + verb + " OrderPlaced --aggregate-type Order",
		RunE: a.changes(func(ctx context.Context, c *client, args []string) error {
			kind := outbox.EventKind{AggregateType: outbox.AggregateType(aggregateType), EventType: outbox.EventType(args[0])}
			if aggregateType == "" {
				kind.AggregateType = outbox.Global
			}
			if args[0] == "" {
				return &usageError{"EVENT_TYPE", "is empty"}
			}
			if err := checkText("EVENT_TYPE", args[0], outbox.MaxEventTypeLength); err != nil {
				return err
			}
			if err := checkText("--aggregate-type", aggregateType, outbox.MaxAggregateTypeLength); err != nil {
				return err
			}
			list, err := c.ob.Paused(ctx)
			if err != nil {
				return err
			}
			isPaused := slices.ContainsFunc(list, func(p outbox.Pause) bool { return p.Kind == kind })
			if changes := isPaused != pauses; changes && !dryRun {
				err = change(c.ob, ctx, kind)
			}
			if err != nil {
				return err
			}
			if err := a.printPause(kind, verb, past, isPaused, pauses, dryRun); err != nil || !pauses {
				return err
			}
			return a.warnOfPause(ctx, c, kind)
		}),
	}
	cmd.Flags().StringVar(&aggregateType, "aggregate-type", "", "the aggregate type; without it, events that name none")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "say what would change, change nothing")
	return cmd
}

func (a *app) printPause(kind outbox.EventKind, verb, past string, isPaused, pauses, dryRun bool) error {
	answer := struct {
		EventType     outbox.EventType     `json:"event_type"`
		AggregateType outbox.AggregateType `json:"aggregate_type"`
		Changed       bool                 `json:"changed"`
		DryRun        bool                 `json:"dry_run,omitempty"`
	}{kind.EventType, kind.AggregateType, isPaused != pauses && !dryRun, dryRun}
	return a.print(answer, func(t *table) {
		switch {
		case isPaused == pauses && pauses:
			t.row(kind.String() + " is paused already")
		case isPaused == pauses:
			t.row(kind.String() + " is not paused; outbox paused lists what is")
		case dryRun:
			t.row("would " + verb + " " + kind.String())
		default:
			t.row(past + " " + kind.String())
		}
	})
}

// warnOfPause warns if no pending event is of the kind: the name may be wrong. It looks at the
// first events of the type.
func (a *app) warnOfPause(ctx context.Context, c *client, kind outbox.EventKind) error {
	page, err := c.ob.FindEvents(ctx, outbox.EventQuery{Limit: outbox.MaxFindLimit, EventFilter: outbox.EventFilter{
		EventType: kind.EventType, Statuses: []outbox.Status{outbox.StatusNew, outbox.StatusRetry},
	}})
	if err != nil {
		return err
	}
	var others []string
	for i := range page.Rows {
		other := outbox.EventKind{AggregateType: page.Rows[i].AggregateType, EventType: kind.EventType}
		if other == kind {
			return nil
		}
		others = append(others, other.String())
	}
	slices.Sort(others)
	others = slices.Compact(others)
	text := "Warning: no pending event of the first " + strconv.Itoa(outbox.SearchLimit) + " is of the kind " + kind.String()
	if len(others) > 0 {
		text += "; pending are events of " + strings.Join(others[:min(len(others), 5)], ", ") + ": name the part before the / with --aggregate-type"
	}
	_, err = fmt.Fprintln(a.errOut, printable(text+"."))
	return err
}
