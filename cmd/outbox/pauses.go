package main

import (
	"cmp"
	"context"
	"fmt"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/outboxkit/outbox-go/outbox"
)

func (a *app) paused() *cobra.Command {
	return &cobra.Command{
		Use: "paused", Short: "Lists the types of events and the keys that are paused", Args: takesNothing,
		RunE: a.with(func(ctx context.Context, c *client, _ []string) error {
			list, err := c.ob.Paused(ctx)
			if err != nil {
				return err
			}
			answer := map[string][]pauseShape{"pauses": pausesOf(list)}
			return a.print(answer, func(t *table) {
				t.row("AGGREGATE TYPE", "EVENT TYPE", "AGGREGATE ID", "SINCE", "UNTIL", "BY", "REASON")
				for _, p := range list {
					t.row(p.Kind.AggregateType, p.Kind.EventType, p.AggregateID, p.Since, endText(p.Until), pausedBy(p), p.Reason)
				}
			})
		}),
	}
}

// endText is the end of a pause.
func endText(until time.Time) string {
	if until.IsZero() {
		return "resume"
	}
	return cellText(until)
}

// pausedBy says who paused a kind.
func pausedBy(p outbox.Pause) string {
	if p.Automatic {
		return "a listener in " + p.By
	}
	return p.By
}

// steering is a command that pauses or resumes a kind.
type steering struct {
	verb, past, short, long, example string
	pauses                           bool
	// change makes the change to a kind or, if the aggregate id is not empty, to a key.
	change func(ctx context.Context, c *client, kind outbox.EventKind, aggregateID string) error
}

func (a *app) pause() *cobra.Command {
	var lasts time.Duration
	var reason string
	cmd := a.steer(steering{
		verb: "pause", past: "paused", pauses: true,
		short: "Stops the deliveries of a type of event, in all processes",
		long: "Stops the deliveries of a type of event, in all processes, until outbox resume or for the\ntime of --for. " +
			"Processes follow when they read the table next: after their poll interval at\nthe latest. A pause replaces the pause that the type has.\n" +
			"With --aggregate-id, only the events with this aggregate id are paused, as long as --for says.",
		example: "  outbox pause OrderPlaced --aggregate-type Order --for 1h --reason 'provider down'",
		change: func(ctx context.Context, c *client, kind outbox.EventKind, aggregateID string) error {
			if aggregateID != "" && lasts == 0 {
				return &usageError{"--for", "is required with --aggregate-id: the events of a key are deferred by this time"}
			}
			pause := outbox.Pause{Kind: kind, AggregateID: aggregateID, Reason: reason, By: operator()}
			if lasts != 0 {
				pause.Until = c.now().Add(lasts)
			}
			return c.ob.Pause(ctx, pause)
		},
	}, func() error {
		if lasts != 0 && lasts < time.Second {
			return &usageError{"--for", fmt.Sprintf("is %s; it must be a second at least", lasts)}
		}
		if strings.IndexFunc(reason, unicode.IsControl) >= 0 {
			return &usageError{"--reason", "contains a control character; write a single line"}
		}
		return checkText("--reason", reason, outbox.MaxPauseReason)
	})
	cmd.Flags().DurationVar(&lasts, "for", 0, "how long, as in 90m; without it, until outbox resume")
	cmd.Flags().StringVar(&reason, "reason", "", "why, for other operators")
	return cmd
}

// operator is the name of the user of this machine; empty if it is not known.
func operator() string {
	u, err := user.Current()
	if err != nil || strings.IndexFunc(u.Username, unicode.IsControl) >= 0 || utf8.RuneCountInString(u.Username) > outbox.MaxPauseBy {
		return ""
	}
	return strings.ToValidUTF8(u.Username, "\uFFFD")
}

func (a *app) resume() *cobra.Command {
	return a.steer(steering{
		verb: "resume", past: "resumed", short: "Ends a pause",
		long: "Ends a pause. The events that stayed in the table are delivered, the oldest first.\n" +
			"With --aggregate-id, ends the pause of a key. The events of the key that were deferred\nbecome due at once if the table has the index for keys or for searching.",
		example: "  outbox resume OrderPlaced --aggregate-type Order",
		change: func(ctx context.Context, c *client, kind outbox.EventKind, aggregateID string) error {
			if aggregateID != "" {
				return c.ob.ResumeKey(ctx, kind, aggregateID)
			}
			return c.ob.Resume(ctx, kind)
		},
	}, func() error { return nil })
}

// steer returns a command that pauses or resumes a kind. check checks the flags of the command.
func (a *app) steer(s steering, check func() error) *cobra.Command {
	var aggregateType, aggregateID string
	var dryRun bool
	cmd := &cobra.Command{
		Use: s.verb + " EVENT_TYPE", Short: s.short, Long: s.long, Args: takes(1, 1, "one event type"), Example: s.example,
		RunE: a.changes(func(ctx context.Context, c *client, args []string) error {
			kind, err := kindOf(args[0], aggregateType)
			if err == nil {
				err = checkText("--aggregate-id", aggregateID, outbox.MaxAggregateIDLength)
			}
			if err == nil {
				err = check()
			}
			if err != nil {
				return err
			}
			list, err := c.ob.Paused(ctx)
			if err != nil {
				return err
			}
			isPaused := slices.ContainsFunc(list, func(p outbox.Pause) bool { return p.Kind == kind && p.AggregateID == aggregateID })
			changes := isPaused || s.pauses
			if changes && !dryRun {
				err = a.warnUnrecorded(s.change(ctx, c, kind, aggregateID))
			}
			if err != nil {
				return err
			}
			if err := a.printSteering(s, kind, aggregateID, isPaused, changes, dryRun); err != nil || !s.pauses {
				return err
			}
			return a.warnOfPause(ctx, c, kind)
		}),
	}
	cmd.Flags().StringVar(&aggregateType, "aggregate-type", "", "the aggregate type; without it, events that name none")
	cmd.Flags().StringVar(&aggregateID, "aggregate-id", "", "only the events of this aggregate id")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "say what would change, change nothing")
	return cmd
}

// kindOf is the kind that a command names.
func kindOf(eventType, aggregateType string) (kind outbox.EventKind, err error) {
	kind = outbox.EventKind{AggregateType: cmp.Or(outbox.AggregateType(aggregateType), outbox.Global), EventType: outbox.EventType(eventType)}
	if eventType == "" {
		return kind, &usageError{"EVENT_TYPE", "is empty"}
	}
	if err := checkText("EVENT_TYPE", eventType, outbox.MaxEventTypeLength); err != nil {
		return kind, err
	}
	return kind, checkText("--aggregate-type", aggregateType, outbox.MaxAggregateTypeLength)
}

func (a *app) printSteering(s steering, kind outbox.EventKind, aggregateID string, isPaused, changes, dryRun bool) error {
	answer := struct {
		EventType     outbox.EventType     `json:"event_type"`
		AggregateType outbox.AggregateType `json:"aggregate_type"`
		AggregateID   string               `json:"aggregate_id,omitempty"`
		Changed       bool                 `json:"changed"`
		DryRun        bool                 `json:"dry_run,omitempty"`
	}{kind.EventType, kind.AggregateType, aggregateID, changes && !dryRun, dryRun}
	what := kind.String()
	if aggregateID != "" {
		what += " of " + aggregateID
	}
	return a.print(answer, func(t *table) {
		before := ""
		if isPaused && s.pauses {
			before = ", in place of the pause that it has"
		}
		switch {
		case !changes:
			t.row(what + " is not paused; outbox paused lists what is")
		case dryRun:
			t.row("would " + s.verb + " " + what + before)
		default:
			t.row(s.past + " " + what + before)
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
