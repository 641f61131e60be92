package main

import (
	"context"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/outboxkit/outbox-go/outbox"
)

// completePatience is how long a completion may ask the database.
const completePatience = 2 * time.Second

// completeFlags makes the shell propose values of flags and arguments.
func (a *app) completeFlags(root *cobra.Command) {
	fixed := map[string][]string{
		"status": {"new", "retry", "done", "dead", "waiting", "due", "delayed", "leased"}, "index": {"age", "key", "tenant", "search"}, "dialect": {"postgres", "mysql", "mariadb", "sqlite"},
	}
	asked := map[string]func(context.Context, *client) []string{
		"event-type": eventTypes, "aggregate-type": aggregateTypes, "group": groupIDs,
	}
	walk(root, func(cmd *cobra.Command) {
		for name, values := range fixed {
			if cmd.Flags().Lookup(name) != nil {
				_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
			}
		}
		for name, ask := range asked {
			if cmd.Flags().Lookup(name) != nil {
				_ = cmd.RegisterFlagCompletionFunc(name, a.proposes(ask))
			}
		}
		switch cmd.Name() {
		case "pause":
			cmd.ValidArgsFunction = a.proposes(eventTypes)
		case "resume":
			cmd.ValidArgsFunction = a.proposes(pausedTypes)
		case "stop", "continue":
			cmd.ValidArgsFunction = a.proposes(replayNames)
		default:
			if cmd.ValidArgsFunction == nil {
				cmd.ValidArgsFunction = cobra.NoFileCompletions
			}
		}
	})
}

func walk(cmd *cobra.Command, visit func(*cobra.Command)) {
	visit(cmd)
	for _, sub := range cmd.Commands() {
		walk(sub, visit)
	}
}

// proposes asks the database for values. A failure proposes nothing, and prints nothing.
func (a *app) proposes(ask func(context.Context, *client) []string) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(context.Background(), completePatience)
		defer cancel()
		c, err := a.open(ctx, false)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		defer c.close()
		values := slices.DeleteFunc(ask(ctx, c), func(value string) bool { return strings.ContainsFunc(value, isRisky) })
		slices.Sort(values)
		return slices.Compact(values), cobra.ShellCompDirectiveNoFileComp
	}
}

// isRisky reports a character that a shell may interpret: completions are not quoted.
func isRisky(r rune) bool {
	return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("._-/:+@", r)
}

// sample returns the newest events: all frequent types are among them.
func sample(ctx context.Context, c *client) []outbox.EventRow {
	page, _ := c.ob.FindEvents(ctx, outbox.EventQuery{Limit: outbox.MaxFindLimit})
	return page.Rows
}

func eventTypes(ctx context.Context, c *client) (types []string) {
	for _, row := range sample(ctx, c) {
		types = append(types, string(row.EventType))
	}
	return types
}

func aggregateTypes(ctx context.Context, c *client) (types []string) {
	for _, row := range sample(ctx, c) {
		types = append(types, string(row.AggregateType))
	}
	return types
}

func pausedTypes(ctx context.Context, c *client) (types []string) {
	list, _ := c.ob.Paused(ctx)
	for _, p := range list {
		types = append(types, string(p.Kind.EventType))
	}
	return slices.Compact(slices.Sorted(slices.Values(types)))
}

func groupIDs(ctx context.Context, c *client) (ids []string) {
	found, _, _ := c.ob.DeadLetters().Groups(ctx, outbox.DeadFilter{})
	for _, g := range found {
		ids = append(ids, g.ID)
	}
	return ids
}
