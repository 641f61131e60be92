package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/outboxkit/outbox-go/internal/operjson"
	"github.com/outboxkit/outbox-go/internal/verdict"
	"github.com/outboxkit/outbox-go/outbox"
)

func (a *app) stats() *cobra.Command {
	var watch bool
	var interval time.Duration
	cmd := &cobra.Command{
		Use: "stats", Short: "Counts events, and shows how fast they are delivered", Args: takesNothing,
		Long: fmt.Sprintf(`Says whether the outbox is well, counts events, and shows how fast they were delivered in the last minute. Each count stops
at %d. The rate and the times come from done events, so they are 0 where done events are
deleted at once.`, outbox.StatsLimit),
		RunE: a.with(func(ctx context.Context, c *client, _ []string) error {
			if interval < 100*time.Millisecond {
				return &usageError{"--interval", "is " + interval.String() + "; the least is 100ms"}
			}
			if !watch {
				s, err := c.statistics(ctx)
				if err != nil {
					return err
				}
				return a.print(s, s.text)
			}
			return a.watch(ctx, c, interval)
		}),
	}
	cmd.Flags().BoolVar(&watch, "watch", false, "print a line every --interval until interrupted")
	cmd.Flags().DurationVar(&interval, "interval", 2*time.Second, "how often --watch prints")
	return cmd
}

func (c *client) statistics(ctx context.Context) (statsShape, error) {
	f, err := verdict.Read(ctx, c.ob, 0)
	if err != nil {
		return statsShape{}, err
	}
	s, t := &f.Stats, &f.Throughput
	return statsShape{
		Verdict: f.Verdict(),
		Pending: s.Pending, Due: s.Due, Delayed: s.Delayed, Dead: s.Dead, CountsUpTo: outbox.StatsLimit,
		DuePaused: s.DuePaused, OldestDue: s.OldestDueAge.Seconds(), Late: operjson.LateKinds(s.Late), Paused: pausesOf(s.Paused),
		Throughput: throughput{t.Done, t.Median.Seconds(), t.P95.Seconds(), t.Max.Seconds()},
	}, nil
}

// count returns a count as a text that says whether the limit was reached.
func count(n int64) string {
	if n >= outbox.StatsLimit {
		return fmt.Sprintf("%d or more", outbox.StatsLimit)
	}
	return fmt.Sprint(n)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func (s statsShape) text(t *table) {
	t.row(s.Verdict.Summary)
	t.field("due", count(s.Due))
	if s.DuePaused > 0 {
		t.field("due and paused", count(s.DuePaused))
	}
	t.field("delayed", count(s.Delayed))
	t.field("dead", count(s.Dead))
	t.field("oldest due", seconds(s.OldestDue))
	for _, k := range s.Late {
		t.field("late", fmt.Sprintf("%s: %s events, the oldest due for %s, may be due for %s",
			kindText(k.AggregateType, k.EventType), count(k.Events), seconds(k.OldestDue), seconds(k.MaxDueAge)))
	}
	t.field("done in the last minute", count(s.Throughput.Done))
	t.field("due to done, median", seconds(s.Throughput.Median))
	t.field("due to done, 95 %", seconds(s.Throughput.P95))
	t.field("due to done, longest", seconds(s.Throughput.Max))
	for _, p := range s.Paused {
		text := kindText(p.AggregateType, p.EventType)
		if p.AggregateID != "" {
			text += " of " + p.AggregateID
		}
		text += " since " + cellText(p.Since)
		if !p.Until.IsZero() {
			text += " until " + cellText(p.Until)
		}
		t.field("paused", text)
	}
}

// watch prints a line at each interval. An interrupt is its normal end.
func (a *app) watch(ctx context.Context, c *client, interval time.Duration) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for first := true; ; first = false {
		s, err := c.statistics(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if err := a.printWatched(s, first); err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func (a *app) printWatched(s statsShape, first bool) error {
	if a.json {
		return a.printJSON(s, false)
	}
	const format = "%-20s  %9v  %9v  %9v  %10v  %9v  %10v  %v\n"
	if first {
		if _, err := fmt.Fprintf(a.out, format, "TIME", "DUE", "DELAYED", "DEAD", "OLDEST DUE", "DONE/MIN", "MEDIAN", "PAUSED"); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(a.out, format, cellText(time.Now()), s.Due, s.Delayed, s.Dead, cellText(seconds(s.OldestDue)),
		s.Throughput.Done, cellText(seconds(s.Throughput.Median)), len(s.Paused))
	return err
}
