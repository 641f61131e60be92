package main

import (
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

func (a *app) version() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Prints the version of the program and of the schema that it knows", Args: takesNothing,
		RunE: func(*cobra.Command, []string) error {
			answer := struct {
				Version string `json:"version"`
				Go      string `json:"go"`
				Schema  int    `json:"schema"`
			}{Version: "unknown", Schema: sqlstore.SchemaVersion}
			if info, ok := debug.ReadBuildInfo(); ok {
				answer.Version, answer.Go = info.Main.Version, info.GoVersion
			}
			return a.print(answer, func(t *table) {
				t.row(fmt.Sprintf("outbox %s, %s, schema version %d", answer.Version, answer.Go, answer.Schema))
			})
		},
	}
}
