package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/outboxkit/outbox-go/internal/operjson"
	"github.com/outboxkit/outbox-go/outbox"
)

func (a *app) shares() *cobra.Command {
	return &cobra.Command{
		Use: "shares", Short: "Lists the limits of all processes together, and the share of each process", Args: takesNothing,
		Long: "Lists the types of events whose limits all processes have together (Fleetwide), and the share of\neach process. " +
			"A process without events of the type has no share. A process that waits has events,\nand no share because the others have all parts.",
		RunE: a.with(func(ctx context.Context, c *client, _ []string) error {
			list, err := c.ob.Shares(ctx)
			if err != nil {
				return err
			}
			return a.print(operjson.SharesOf(list), func(t *table) {
				t.row("AGGREGATE TYPE", "EVENT TYPE", "LIMITS", "NODE", "SHARE", "UNTIL")
				for i := range list {
					k := &list[i]
					kind := []any{k.Kind.AggregateType, k.Kind.EventType, operjson.Limits(k)}
					if len(k.Shares) == 0 {
						t.row(append(kind, "", "", "")...)
					}
					for _, s := range k.Shares {
						t.row(append(kind, s.Owner, shareText(s), s.Until)...)
					}
				}
			})
		}),
	}
}

// shareText is the share of a process.
func shareText(s outbox.ProcessShare) string {
	if s.Waits {
		return "waits"
	}
	return fmt.Sprintf("%d of %d", s.Parts, s.Of)
}
