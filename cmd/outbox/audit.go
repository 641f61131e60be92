package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/outboxkit/outbox-go/internal/operjson"
	"github.com/outboxkit/outbox-go/outbox"
)

func (a *app) audit() *cobra.Command {
	var limit int
	var after, since string
	cmd := &cobra.Command{
		Use: "audit", Short: "Lists the changes that operators made, the newest first", Args: takesNothing,
		Long: "Lists the changes that operators made, the newest first: pauses, replays, deletions, restorations and purges.\nA purge deletes entries that are older than 90 days, and all but the newest 10,000. To keep them, print them\nto a file from time to time: outbox audit --since 24h --limit 10000 --json",
		RunE: a.with(func(ctx context.Context, c *client, _ []string) error {
			if err := checkCount("--limit", limit, outbox.AuditLimit); err != nil {
				return err
			}
			oldest, err := parseTime("--since", since, time.Now())
			if err != nil {
				return err
			}
			page, err := c.changes(ctx, after, limit, oldest)
			if err != nil {
				return err
			}
			return a.print(operjson.AuditOf(page), func(t *table) {
				t.row("AT", "BY", "FROM", "ACTION", "COUNT", "INCOMPLETE", "TARGET", "REASON", "DELETION")
				for i := range page.Rows {
					e := &page.Rows[i]
					t.row(e.At, e.Name, e.From, e.Action, e.Count, e.Incomplete, short(e.Target), e.Reason, e.DeletionID)
				}
				if page.Next != "" {
					t.row("there is more: --after " + page.Next)
				}
			})
		}),
	}
	cmd.Flags().IntVar(&limit, "limit", outbox.DefaultAuditLimit, "how many entries, up to 10,000")
	cmd.Flags().StringVar(&after, "after", "", "the next page: the value that the page before printed")
	cmd.Flags().StringVar(&since, "since", "", "changes at this time or later: 2006-01-02T15:04:05Z, or 2h for two hours ago")
	return cmd
}

// changes reads pages of the audit log until it has enough entries, or the first that is too old.
func (c *client) changes(ctx context.Context, after string, limit int, oldest time.Time) (all outbox.Page[outbox.AuditEntry], err error) {
	for all.Next = after; ; {
		page, err := c.ob.Audit(ctx, outbox.AuditQuery{After: all.Next, Limit: min(limit-len(all.Rows), outbox.MaxAuditLimit)})
		if err != nil {
			return all, err
		}
		all.Next = page.Next
		for i := range page.Rows {
			if page.Rows[i].At.Before(oldest) {
				all.Next = ""
				return all, nil
			}
			all.Rows = append(all.Rows, page.Rows[i])
		}
		if all.Next == "" || len(all.Rows) == limit {
			return all, nil
		}
	}
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
