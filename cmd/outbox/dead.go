package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/outboxkit/outbox-go/internal/operjson"
	"github.com/outboxkit/outbox-go/outbox"
)

// maxDeadLimit is the most dead letters that a listing returns.
const maxDeadLimit = 1000

func (a *app) dead() *cobra.Command {
	return groupOf("dead", "Lists, replays, deletes and restores dead letters",
		a.deadList(), a.deadShow(), a.deadGroups(), a.deadReplay(), a.deadDelete(), a.deadRestore())
}

func (a *app) deadList() *cobra.Command {
	var f filter
	var group, after string
	var limit int
	cmd := &cobra.Command{
		Use: "list", Short: "Lists dead letters in the order of death, without payloads and headers", Args: takesNothing,
		RunE: a.with(func(ctx context.Context, c *client, _ []string) error {
			q, err := deadQuery(f, group, after, limit, c.now())
			if err != nil {
				return err
			}
			page, err := c.ob.DeadLetters().Find(ctx, q)
			if err != nil {
				return wrongAfter(err, after)
			}
			return a.printDead(page)
		}),
	}
	f.register(cmd, "only those that died")
	registerGroup(cmd, &group)
	cmd.Flags().IntVar(&limit, "limit", outbox.DefaultFindLimit, "the most dead letters to list")
	cmd.Flags().StringVar(&after, "after", "", "go on behind an earlier listing")
	return cmd
}

func registerGroup(cmd *cobra.Command, group *string) {
	cmd.Flags().StringVar(group, "group", "", "only those of this group; see outbox dead groups")
}

func deadQuery(f filter, group, after string, limit int, now time.Time) (outbox.DeadQuery, error) {
	if err := checkCount("--limit", limit, maxDeadLimit); err != nil {
		return outbox.DeadQuery{}, err
	}
	chosen, err := f.dead(group, now)
	return outbox.DeadQuery{DeadFilter: chosen, After: after, Limit: limit}, err
}

// printDead prints a page, and the place of the next page.
func (a *app) printDead(page outbox.Page[outbox.DeadLetter]) error {
	answer := deadListing{DeadLetters: []deadLetter{}, More: page.Next != "", Next: page.Next}
	for i := range page.Rows {
		answer.DeadLetters = append(answer.DeadLetters, deadOf(&page.Rows[i]))
	}
	err := a.print(answer, func(t *table) {
		t.row("EVENT ID", "TYPE", "AGGREGATE ID", "ATTEMPTS", "DIED", "LISTENER", "LAST ERROR")
		for _, d := range answer.DeadLetters {
			t.row(d.EventID, kindText(d.AggregateType, d.EventType), short(d.AggregateID), d.Attempts, d.DiedAt, short(d.Listener), short(d.LastError))
		}
	})
	a.goOn(answer.Next)
	return err
}

func (a *app) deadShow() *cobra.Command {
	var payload bool
	cmd := &cobra.Command{
		Use: "show EVENT_ID", Short: "Shows one dead letter", Args: takes(1, 1, "one event id"),
		RunE: a.with(func(ctx context.Context, c *client, args []string) error {
			id, err := eventID(args[0])
			if err != nil {
				return err
			}
			letter, err := c.ob.DeadLetters().Get(ctx, id)
			if err != nil {
				return notFound(err, "there is no dead letter with this id")
			}
			d := deadOf(&letter)
			if payload {
				d.Disclosed = operjson.Disclose(&letter.Envelope)
			}
			return a.print(d, func(t *table) {
				t.field("event", d.EventID)
				t.fields(d.EventType, d.AggregateType, d.AggregateID, d.TenantID, d.Listener, d.OriginalID)
				t.field("occurred", d.OccurredAt)
				t.field("died", d.DiedAt)
				t.field("attempts", d.Attempts)
				t.field("last error", d.LastError)
				t.disclosed(d.Disclosed)
			})
		}),
	}
	cmd.Flags().BoolVar(&payload, "payload", false, "show the payload and the headers too")
	return cmd
}

func (a *app) deadGroups() *cobra.Command {
	var f filter
	cmd := &cobra.Command{
		Use: "groups", Short: "Groups dead letters by type and reason, the largest group first", Args: takesNothing,
		Long: fmt.Sprintf(`Groups dead letters by type, listener and reason, the largest group first. The reason is
the error without numbers, ids and quoted values.

It reads the %d letters that died first.`, outbox.GroupLimit),
		Example: "  outbox dead groups\n  outbox dead replay --group j1te3m6bjjnkre61 --dry-run",
		RunE: a.with(func(ctx context.Context, c *client, _ []string) error {
			chosen, err := f.dead("", c.now())
			if err != nil {
				return err
			}
			found, more, err := c.ob.DeadLetters().Groups(ctx, chosen)
			if err != nil {
				return err
			}
			return a.printGroups(found, more)
		}),
	}
	f.register(cmd, "only those that died")
	return cmd
}

func (a *app) printGroups(found []outbox.DeadGroup, more bool) error {
	answer := struct {
		Groups []deadGroup `json:"groups"`
		More   bool        `json:"more"`
	}{[]deadGroup{}, more}
	for _, g := range found {
		answer.Groups = append(answer.Groups, deadGroup{
			ID: g.ID, EventType: g.Kind.EventType, AggregateType: g.Kind.AggregateType, Listener: g.Kind.Listener,
			Reason: g.Reason, Count: g.Count, First: g.First.UTC(), Last: g.Last.UTC(), Example: g.Example,
		})
	}
	err := a.print(answer, func(t *table) {
		t.row("GROUP", "COUNT", "TYPE", "LISTENER", "LAST DIED", "EXAMPLE", "REASON")
		for _, g := range answer.Groups {
			t.row(g.ID, g.Count, kindText(g.AggregateType, g.EventType), short(g.Listener), g.Last, g.Example, g.Reason) // the last column may be long
		}
	})
	if more && !a.json {
		_, _ = fmt.Fprintf(a.errOut, "There are more dead letters than the %d that were read; narrow them with --since or --event-type.\n", outbox.GroupLimit)
	}
	return err
}
