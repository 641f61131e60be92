package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

func (a *app) schema() *cobra.Command {
	return groupOf("schema", "Creates, checks and upgrades the table", a.schemaPrint(), a.schemaCreate(), a.schemaCheck(), a.schemaMigrate())
}

var indexOptions = map[string]sqlstore.Option{
	"age": sqlstore.WithAgeIndex(), "key": sqlstore.WithKeyIndex(), "tenant": sqlstore.WithTenantIndex(), "search": sqlstore.WithSearchIndex(),
}

// registerIndexes adds the flag for indexes that only some modes need.
func registerIndexes(cmd *cobra.Command, names *[]string) {
	cmd.Flags().StringSliceVar(names, "index", nil, "indexes to add: age (purging in WriterOnly), key (OrderedByKey), tenant (TenantsInTurn), search (events of an aggregate)")
}

func optionsOf(indexes []string) ([]sqlstore.Option, error) {
	var options []sqlstore.Option
	for _, name := range indexes {
		option, known := indexOptions[name]
		if !known {
			return nil, &usageError{"--index", fmt.Sprintf("has an unknown index of %d bytes; known are age, key, tenant and search", len(name))}
		}
		options = append(options, option)
	}
	return options, nil
}

func (a *app) schemaPrint() *cobra.Command {
	var dialect string
	var indexes []string
	var version int
	var down bool
	cmd := &cobra.Command{
		Use: "print", Short: "Prints the SQL of the table, without a database", Args: takesNothing,
		Example: "  outbox schema print --dialect postgres\n  outbox schema print --dialect mysql --version 2 --down",
		RunE: func(*cobra.Command, []string) error {
			newStore := map[string]func(...sqlstore.Option) *sqlstore.Store{
				"postgres": sqlstore.Postgres, "mysql": sqlstore.MySQL, "mariadb": sqlstore.MySQL, "sqlite": sqlstore.SQLite,
			}[dialect]
			if newStore == nil {
				return &usageError{"--dialect", "must be postgres, mysql, mariadb or sqlite"}
			}
			options, err := optionsOf(indexes)
			if err != nil {
				return err
			}
			store := newStore(append(options, sqlstore.WithTable(a.table))...)
			if err := store.Validate(); err != nil {
				return tableError(err)
			}
			text, err := schemaText(store, version, down)
			if err != nil {
				return err
			}
			text = strings.TrimSpace(text)
			if a.json {
				return a.printJSON(map[string]string{"dialect": store.Dialect(), "table": store.Table(), "sql": text}, "  ")
			}
			_, err = fmt.Fprintln(a.out, text)
			return err
		},
	}
	cmd.Flags().StringVar(&dialect, "dialect", "", "postgres, mysql, mariadb or sqlite")
	cmd.Flags().IntVar(&version, "version", 0, "only the step to this version; 0: all of the newest version")
	cmd.Flags().BoolVar(&down, "down", false, "with --version: the step back")
	registerIndexes(cmd, &indexes)
	return cmd
}

func schemaText(store *sqlstore.Store, version int, down bool) (string, error) {
	migrations := store.Migrations()
	switch {
	case version < 0 || version > len(migrations):
		return "", &usageError{"--version", fmt.Sprintf("is %d; it must be from 1 to %d", version, len(migrations))}
	case version == 0 && down:
		return "", &usageError{"--down", "needs --version"}
	case version == 0:
		return store.Schema(), nil
	case down:
		return migrations[version-1].Down, nil
	default:
		return migrations[version-1].Up, nil
	}
}

func (a *app) schemaCreate() *cobra.Command {
	var indexes []string
	var dryRun bool
	cmd := &cobra.Command{
		Use: "create", Short: "Creates the table, and what of it is missing", Args: takesNothing,
		Long: "Creates the table, its indexes and its control table where they are missing, and brings\nan older table to the newest version. A file of SQLite is created too.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.migrating(cmd.Context(), indexes, dryRun, 0)
		},
	}
	registerIndexes(cmd, &indexes)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "say what would change, change nothing")
	return cmd
}

func (a *app) schemaMigrate() *cobra.Command {
	var indexes []string
	var dryRun bool
	var to int
	cmd := &cobra.Command{
		Use: "migrate", Short: "Brings the table to another version of the schema", Args: takesNothing,
		Long: "Brings the table to another version of the schema, up or down, while processes write and\ndeliver. docs/SCHEMA.md lists the versions.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkCount("--to", to, sqlstore.SchemaVersion); err != nil {
				return err
			}
			return a.migrating(cmd.Context(), indexes, dryRun, to)
		},
	}
	registerIndexes(cmd, &indexes)
	cmd.Flags().IntVar(&to, "to", sqlstore.SchemaVersion, "the version")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "say what would change, change nothing")
	return cmd
}

// migrating creates the table if to is 0, and otherwise brings a table that exists to
// that version.
func (a *app) migrating(ctx context.Context, indexes []string, dryRun bool, to int) error {
	options, err := optionsOf(indexes)
	if err != nil {
		return err
	}
	c, err := a.open(ctx, to == 0 && !dryRun)
	if err != nil {
		return err
	}
	defer c.close()
	store, err := sqlstore.Detect(ctx, c.db, append(options, sqlstore.WithTable(a.table))...)
	if err != nil {
		return err
	}
	from, err := store.SchemaVersion(ctx, c.db)
	if err != nil {
		return err
	}
	answer := struct {
		From   int  `json:"from"`
		To     int  `json:"to"`
		DryRun bool `json:"dry_run,omitempty"`
	}{from, to, dryRun}
	switch {
	case to == 0:
		answer.To = max(from, sqlstore.SchemaVersion)
	case from == 0:
		return fmt.Errorf("the table %s does not exist in this database: create it with outbox schema create", a.table)
	}
	switch {
	case dryRun:
	case to == 0:
		err = store.CreateSchema(ctx, c.db)
	default:
		_, err = store.Migrate(ctx, c.db, to)
	}
	if err != nil {
		return err
	}
	return a.print(answer, func(t *table) {
		doing := map[bool]string{true: "would bring", false: "brought"}[dryRun]
		if from == 0 {
			doing = map[bool]string{true: "would create", false: "created"}[dryRun]
			t.row(fmt.Sprintf("%s the table %s, version %d", doing, a.table, answer.To))
			return
		}
		if from == answer.To {
			t.row(fmt.Sprintf("the table %s has version %d already", a.table, from))
			return
		}
		t.row(fmt.Sprintf("%s the table %s from version %d to %d", doing, a.table, from, answer.To))
	})
}

func (a *app) schemaCheck() *cobra.Command {
	return &cobra.Command{
		Use: "check", Short: "Checks that the table fits this version of the library", Args: takesNothing,
		RunE: a.with(func(ctx context.Context, c *client, _ []string) error {
			version, err := c.store.SchemaVersion(ctx, c.db)
			if err := errors.Join(err, c.store.Check(ctx, c.db, false)); err != nil {
				return err
			}
			return a.print(map[string]int{"version": version, "newest": sqlstore.SchemaVersion}, func(t *table) {
				t.row(fmt.Sprintf("the table %s has version %d and fits", a.table, version))
			})
		}),
	}
}
