package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/outboxkit/outbox-go/cmd/outbox/internal/doctor"
	"github.com/outboxkit/outbox-go/internal/verdict"
)

func (a *app) doctor() *cobra.Command {
	var watch bool
	var interval time.Duration
	cmd := &cobra.Command{
		Use: "doctor", Short: "Looks for what keeps the outbox from working well", Args: takesNothing,
		Long: `Looks for what keeps the outbox from working well: in the table and its indexes, in the
plans of statements, in the settings of the database, and in what other sessions do. It
writes, claims, marks and deletes rows in a transaction that it rolls back, and changes
nothing. The first line says whether events are delivered in time, and if not, why.

Each finding is ok, a note, a warning or a failure, and says what to do. The exit code is
4 if the worst is a warning and 5 if it is a failure. docs/reference/doctor.md explains
each check.

With --watch it looks again and again, until it is interrupted, and prints the findings that
are not ok whenever the verdict or the level of a finding has changed. With --json it prints
a line for each look.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if interval < time.Second { // a look has dozens of statements
				return &usageError{"--interval", "is " + interval.String() + "; the least is 1s"}
			}
			c, err := a.open(cmd.Context(), false)
			if err != nil {
				return err
			}
			defer c.close()
			if watch {
				return a.watchFindings(cmd.Context(), c, interval)
			}
			e, err := examine(cmd.Context(), c)
			if err != nil {
				return err
			}
			if err := a.print(e, e.table); err != nil {
				return err
			}
			return e.code()
		},
	}
	cmd.Flags().BoolVar(&watch, "watch", false, "look again every --interval until interrupted")
	cmd.Flags().DurationVar(&interval, "interval", 10*time.Second, "how often --watch looks")
	return cmd
}

// examination is what the doctor saw.
type examination struct {
	At *time.Time `json:"at,omitempty"` // with --watch
	// Verdict is null if the table cannot be read, which a finding says.
	Verdict  *verdict.Verdict `json:"verdict"`
	Worst    doctor.Level     `json:"worst"`
	Findings []doctor.Finding `json:"findings"`
}

func examine(ctx context.Context, c *client) (e examination, err error) {
	e.Findings, err = doctor.Examine(ctx, doctor.Config{DB: c.db, Store: c.store, Outbox: c.ob})
	e.Worst = doctor.Worst(e.Findings)
	switch {
	case errors.Is(err, doctor.ErrNoAnswer): // a finding says so
		return e, nil
	case err != nil:
		return e, err
	}
	facts, err := verdict.Read(ctx, c.ob, 0)
	if v := facts.Verdict(); err == nil {
		e.Verdict = &v
	}
	return e, ctx.Err()
}

// code is the exit code.
func (e *examination) code() error {
	switch e.Worst {
	case doctor.Failure:
		return exitError(exitFailures)
	case doctor.Warning:
		return exitError(exitWarnings)
	default:
		return nil
	}
}

// doctorPage is one address for all findings: in a terminal, an address for each would hide the findings.
const doctorPage = "https://github.com/outboxkit/outbox-go/blob/main/" + doctor.Page

func (e *examination) table(t *table) {
	if e.Verdict != nil {
		t.row(e.Verdict.Summary)
	}
	for _, f := range e.Findings {
		t.finding(f)
	}
	t.row(fmt.Sprintf("the worst finding is: %s", e.Worst))
	if e.Worst > doctor.OK {
		t.row("each check is explained in " + doctorPage)
	}
}

func (t *table) finding(f doctor.Finding) {
	t.row(f.Level, f.Check, f.Seen)
	if f.WayOut != "" {
		t.row(" ", " ", "→ "+f.WayOut)
	}
}

// watchFindings examines again and again. A look that fails is printed as an error, and the watch goes on. An
// interrupt is its normal end.
func (a *app) watchFindings(ctx context.Context, c *client, interval time.Duration) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	shown := ""
	for {
		e, err := examine(ctx, c)
		now := time.Now()
		switch seen := e.essence(err); {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			if seen != shown {
				a.report(err)
			}
			shown = seen
		default:
			if e.At = &now; a.json || seen != shown {
				if err := a.printLook(&e); err != nil {
					return err
				}
			}
			shown = seen
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// printLook prints what needs a hand.
func (a *app) printLook(e *examination) error {
	if a.json {
		return a.printJSON(e, false)
	}
	return a.print(nil, func(t *table) {
		summary := "the table cannot be read"
		if e.Verdict != nil {
			summary = e.Verdict.Summary
		}
		t.row(fmt.Sprintf("%s  %s", e.At.UTC().Format(time.RFC3339), summary))
		for _, f := range e.Findings {
			if f.Level != doctor.OK {
				t.finding(f)
			}
		}
	})
}

// essence is what a watch prints the changes of: the levels, but no numbers, which change all the time.
func (e *examination) essence(err error) string {
	if err != nil {
		return err.Error()
	}
	var b strings.Builder
	if e.Verdict != nil {
		fmt.Fprintln(&b, e.Verdict.Level)
		for _, r := range e.Verdict.Reasons {
			fmt.Fprintln(&b, r.Subject)
		}
	}
	for _, f := range e.Findings {
		fmt.Fprintln(&b, f.Check, f.Level)
	}
	return b.String()
}
