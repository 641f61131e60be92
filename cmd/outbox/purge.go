package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/outboxkit/outbox-go/outbox"
)

func (a *app) purge() *cobra.Command {
	b := bulk{verb: "purge", past: "purged", what: "done, dead and deleted events", rest: "the others are still there"}
	var retention time.Duration
	var batch int
	cmd := &cobra.Command{
		Use: "purge", Short: "Deletes done, dead and deleted events that are older than the retention", Args: takesNothing,
		Long:    "Deletes done and dead events that ended longer ago than the retention, and dead letters that were\ndeleted longer ago: they cannot be restored then. Events that are not delivered stay, also those of\nWriterOnly.\n\nThe number that it says before is counted up to 100,000 done and deleted events.",
		Example: "  outbox purge --retention 168h --dry-run",
		RunE: a.changes(func(ctx context.Context, c *client, _ []string) error {
			if retention < 0 {
				return &usageError{"--retention", "is negative"}
			}
			if err := checkCount("--batch", batch, outbox.MaxBatch); err != nil {
				return err
			}
			now, err := c.store.Now(ctx, c.db)
			if err != nil {
				return err
			}
			before := now.Add(-retention)
			var matching int64
			matching, b.atLeast, err = c.ended(ctx, before)
			if err != nil {
				return err
			}
			b.batch = batch
			return a.do(ctx, &b, matching, func(ctx context.Context, progress func(int)) (int, error) {
				total, err := c.purge(ctx, before, batch, progress)
				if total == 0 && err != nil {
					return 0, err
				}
				entry := outbox.AuditEntry{Action: "purge", Target: "old rows, retention " + retention.String(), Count: total, Incomplete: err != nil}
				if unrecorded := c.ob.RecordChange(ctx, entry); err == nil {
					err = unrecorded
				}
				return total, err
			})
		}),
	}
	cmd.Flags().DurationVar(&retention, "retention", outbox.DefaultRetention, "how long events are kept")
	cmd.Flags().IntVar(&batch, "batch", outbox.DefaultPurgeBatch, "how many are deleted in one transaction")
	b.register(cmd)
	return cmd
}

// purge deletes the events that ended before a time, batch by batch, and then old entries of the audit
// log. It returns how many events it deleted, also with an error.
func (c *client) purge(ctx context.Context, before time.Time, batch int, progress func(int)) (total int, err error) {
	for purged := (outbox.Purged{Rows: batch}); purged.Rows == batch; {
		if purged, err = c.store.Purge(ctx, c.db, outbox.PurgeQuery{Before: before, Limit: batch}); err != nil {
			return total, err
		}
		total += purged.Rows
		progress(total)
	}
	for n := 1; n > 0; {
		if n, err = c.store.ForgetChanges(ctx, c.db, outbox.AuditLimit, batch); err != nil {
			return total, err
		}
	}
	return total, nil
}

// ended counts the events that ended before a time: all dead events, and done events up to
// outbox.StatsLimit. more says that there may be more done events.
func (c *client) ended(ctx context.Context, before time.Time) (n int64, more bool, err error) {
	n, err = c.ob.DeadLetters().Count(ctx, outbox.DeadFilter{Until: before})
	if err != nil {
		return 0, false, err
	}
	q := outbox.EventQuery{EventFilter: outbox.EventFilter{Statuses: []outbox.Status{outbox.StatusDone}, Until: before}, Limit: outbox.MaxFindLimit}
	for done := int64(0); done < outbox.StatsLimit; {
		page, err := c.ob.FindEvents(ctx, q)
		if err != nil {
			return 0, false, err
		}
		n, done = n+int64(len(page.Rows)), done+int64(len(page.Rows))
		if q.After = page.Next; page.Next == "" {
			return n, false, nil
		}
	}
	return n, true, nil
}
