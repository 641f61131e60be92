package main

import (
	"context"
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
	"unique": sqlstore.WithUniqueIndex(),
}

// registerIndexes adds the flag for indexes that only some modes need.
func registerIndexes(cmd *cobra.Command, names *[]string) {
	cmd.Flags().StringSliceVar(names, "index", nil, "indexes to add: age (purging in WriterOnly), key (OrderedByKey), tenant (TenantsInTurn), search (one aggregate), unique (unique keys)")
}

func optionsOf(indexes []string) ([]sqlstore.Option, error) {
	var options []sqlstore.Option
	for _, name := range indexes {
		option, known := indexOptions[name]
		if !known {
			return nil, &usageError{"--index", fmt.Sprintf("has an unknown index of %d bytes; known are age, key, tenant, search and unique", len(name))}
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
				return a.printJSON(map[string]string{"dialect": store.Dialect(), "table": store.Table(), "sql": text}, true)
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

func (a *app) schemaCheck() *cobra.Command {
	return &cobra.Command{
		Use: "check", Short: "Checks that the table fits this version of the library", Args: takesNothing,
		RunE: a.with(func(ctx context.Context, c *client, _ []string) error {
			if err := c.store.Check(ctx, c.db, false); err != nil {
				return err
			}
			version, err := c.store.SchemaVersion(ctx, c.db)
			if err != nil {
				return err
			}
			return a.print(map[string]int{"version": version, "newest": sqlstore.SchemaVersion}, func(t *table) {
				t.row(fmt.Sprintf("the table %s has version %d and fits", a.table, version))
			})
		}),
	}
}
