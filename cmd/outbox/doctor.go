package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/outboxkit/outbox-go/cmd/outbox/internal/doctor"
	"github.com/outboxkit/outbox-go/internal/verdict"
)

func (a *app) doctor() *cobra.Command {
	return &cobra.Command{
		Use: "doctor", Short: "Looks for what keeps the outbox from working well", Args: takesNothing,
		Long: `Looks for what keeps the outbox from working well: in the table and its indexes, in the
plans of statements, in the settings of the database, and in what other sessions do. It
writes, claims, marks and deletes a row in a transaction that it rolls back, and changes
nothing. The first line says whether events are delivered in time, and if not, why.

Each finding is ok, a note, a warning or a failure, and says what to do. The exit code is
4 if the worst is a warning and 5 if it is a failure.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.open(cmd.Context(), false)
			if err != nil {
				return err
			}
			defer c.close()
			return a.examine(cmd.Context(), c)
		},
	}
}

func (a *app) examine(ctx context.Context, c *client) error {
	findings, err := doctor.Examine(ctx, doctor.Config{DB: c.db, Store: c.store, Outbox: c.ob})
	if err != nil {
		return err
	}
	worst := doctor.Worst(findings)
	facts, err := verdict.Read(ctx, c.ob, 0)
	var said *verdict.Verdict
	if v := facts.Verdict(); err == nil {
		said = &v
	}
	answer := struct {
		// Verdict is null if the table cannot be read, which a finding says.
		Verdict  *verdict.Verdict `json:"verdict"`
		Worst    doctor.Level     `json:"worst"`
		Findings []doctor.Finding `json:"findings"`
	}{said, worst, findings}
	if err := a.print(answer, func(t *table) {
		if said != nil {
			t.row(said.Summary)
		}
		for _, f := range findings {
			t.row(f.Level, f.Check, f.Seen)
			if f.WayOut != "" {
				t.row(" ", " ", "→ "+f.WayOut)
			}
		}
		t.row(fmt.Sprintf("the worst finding is: %s", worst))
	}); err != nil {
		return err
	}
	switch worst {
	case doctor.Failure:
		return exitError(exitFailures)
	case doctor.Warning:
		return exitError(exitWarnings)
	default:
		return nil
	}
}
