package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/outboxkit/outbox-go/internal/operjson"
	"github.com/outboxkit/outbox-go/outbox"
)

func (a *app) audit() *cobra.Command {
	var q outbox.AuditQuery
	cmd := &cobra.Command{
		Use: "audit", Short: "Lists the changes that operators made, the newest first", Args: takesNothing,
		Long: "Lists the changes that operators made, the newest first: pauses, replays, deletions and purges.\nAn entry is kept for 90 days, and 10,000 entries at most.",
		RunE: a.with(func(ctx context.Context, c *client, _ []string) error {
			if err := checkCount("--limit", q.Limit, outbox.MaxAuditLimit); err != nil {
				return err
			}
			page, err := c.ob.Audit(ctx, q)
			if err != nil {
				return err
			}
			return a.print(operjson.AuditOf(page), func(t *table) {
				t.row("AT", "BY", "FROM", "ACTION", "COUNT", "INCOMPLETE", "TARGET", "REASON")
				for i := range page.Rows {
					e := &page.Rows[i]
					t.row(e.At, e.Name, e.From, e.Action, e.Count, e.Incomplete, short(e.Target), e.Reason)
				}
				if page.Next != "" {
					t.row("there is more: --after " + page.Next)
				}
			})
		}),
	}
	cmd.Flags().IntVar(&q.Limit, "limit", outbox.DefaultAuditLimit, "how many entries")
	cmd.Flags().StringVar(&q.After, "after", "", "the next page: the value that the page before printed")
	return cmd
}
