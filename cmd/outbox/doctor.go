package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/outboxkit/outbox-go/cmd/outbox/internal/doctor"
)

func (a *app) doctor() *cobra.Command {
	return &cobra.Command{
		Use: "doctor", Short: "Looks for what keeps the outbox from working well", Args: takesNothing,
		Long: `Looks for what keeps the outbox from working well: in the table and its indexes, in the
plans of statements, in the settings of the database, and in what other sessions do. It
writes, claims, marks and deletes a row in a transaction that it rolls back, and changes
nothing.

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
	answer := struct {
		Worst    doctor.Level     `json:"worst"`
		Findings []doctor.Finding `json:"findings"`
	}{worst, findings}
	if err := a.print(answer, func(t *table) {
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
