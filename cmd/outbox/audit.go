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

func (a *app) audit() *cobra.Command {
	var q outbox.AuditQuery
	cmd := &cobra.Command{
		Use: "audit", Short: "Lists the changes that operators made, the newest first", Args: takesNothing,
		Long: "Lists the changes that operators made, the newest first: pauses, replays, deletions and purges.\nA purge deletes entries that are older than 90 days, and all but the newest 10,000.",
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

// warnUnrecorded warns of a change that is done, and has no entry in the audit log. It returns other
// errors.
func (a *app) warnUnrecorded(err error) error {
	if !errors.Is(err, outbox.ErrNotRecorded) {
		return err
	}
	_, err = fmt.Fprintln(a.errOut, printable("Warning: "+strings.TrimPrefix(err.Error(), "outbox: ")))
	return err
}
