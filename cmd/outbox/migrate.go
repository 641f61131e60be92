package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outboxkit/outbox-go/cmd/outbox/internal/catalog"
	"github.com/outboxkit/outbox-go/internal/sqlname"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

func (a *app) schemaCreate() *cobra.Command {
	m := migration{create: true, to: sqlstore.SchemaVersion}
	cmd := &cobra.Command{
		Use: "create", Short: "Creates the table, and what of it is missing", Args: takesNothing,
		Long: "Creates the table, its indexes and its control table where they are missing, and brings\nan older table to the newest version. A file of SQLite is created too.",
		RunE: func(cmd *cobra.Command, _ []string) error { return a.migrate(cmd.Context(), m) },
	}
	m.register(cmd)
	return cmd
}

func (a *app) schemaMigrate() *cobra.Command {
	var m migration
	cmd := &cobra.Command{
		Use: "migrate", Short: "Brings the table to another version of the schema", Args: takesNothing,
		Long: "Brings the table to another version of the schema, up or down, while processes write and\ndeliver. docs/how-to/migrations.md lists the versions.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkCount("--to", m.to, sqlstore.SchemaVersion); err != nil {
				return err
			}
			return a.migrate(cmd.Context(), m)
		},
	}
	cmd.Flags().IntVar(&m.to, "to", sqlstore.SchemaVersion, "the version")
	m.register(cmd)
	return cmd
}

// migration is a change of the schema.
type migration struct {
	create bool // also a table that does not exist
	to     int

	indexes     []string // the values of --index
	dryRun, yes bool
}

func (m *migration) register(cmd *cobra.Command) {
	registerIndexes(cmd, &m.indexes)
	cmd.Flags().BoolVar(&m.dryRun, "dry-run", false, "say what would change, change nothing")
	cmd.Flags().BoolVar(&m.yes, "yes", false, "do not ask")
}

func (a *app) migrate(ctx context.Context, m migration) error {
	options, err := optionsOf(m.indexes)
	if err != nil {
		return err
	}
	c, err := a.open(ctx, m.create && !m.dryRun)
	if err != nil {
		return err
	}
	defer c.close()
	if c.store, err = sqlstore.Detect(ctx, c.db, append(options, sqlstore.WithTable(a.table))...); err != nil {
		return err
	}
	return a.explain(ctx, c, a.migrateWith(ctx, c, m))
}

// migrateWith compares the table with the wanted schema, asks, and changes the table.
func (a *app) migrateWith(ctx context.Context, c *client, m migration) error {
	answer, err := a.migrationOf(ctx, c, m)
	if err != nil {
		return err
	}
	if answer.From > sqlstore.SchemaVersion { // a newer table that fits
		answer.To = answer.From
		return a.printMigration(answer)
	}
	if m.dryRun {
		return a.printMigration(answer)
	}
	if question := answer.question(a.table, c.store.Dialect()); question != "" && !m.yes {
		if err := a.ask(ctx, question); err != nil {
			return err
		}
	}
	// Another process may have been faster.
	if answer.From, err = c.store.Migrate(ctx, c.db, m.to); err != nil {
		return err
	}
	return a.printMigration(answer)
}

// migrationAnswer describes the changes of a migration.
type migrationAnswer struct {
	From    int      `json:"from"` // 0: there is no table
	To      int      `json:"to"`
	Indexes []string `json:"indexes,omitempty"` // added to a table that exists
	DryRun  bool     `json:"dry_run,omitempty"`
}

func (a *app) migrationOf(ctx context.Context, c *client, m migration) (answer migrationAnswer, err error) {
	answer = migrationAnswer{To: m.to, DryRun: m.dryRun}
	name, err := sqlname.Parse(a.table)
	if err != nil {
		return answer, err
	}
	if missing, err := c.isSchemaMissing(ctx, name.Schema); err != nil || missing {
		return answer, orElse(err, a.schemaError(name))
	}
	if answer.From, err = c.store.SchemaVersion(ctx, c.db); err != nil {
		return answer, err
	}
	switch {
	case answer.From > sqlstore.SchemaVersion && m.create:
		return answer, c.store.Check(ctx, c.db, false)
	case answer.From > sqlstore.SchemaVersion:
		return answer, fmt.Errorf("the table has version %d of the schema, and this command knows versions up to %d: use the command of the build that made it", answer.From, sqlstore.SchemaVersion)
	case answer.From == 0 && !m.create:
		return answer, fmt.Errorf("the table %s does not exist in this database: create it with %s", a.table, a.createCommand())
	case answer.From > 0:
		answer.Indexes, err = c.missingIndexes(ctx, name)
	}
	return answer, err
}

func orElse(err, other error) error {
	if err != nil {
		return err
	}
	return other
}

// missingIndexes returns the indexes of the schema, and of --index, that the table does not have.
func (c *client) missingIndexes(ctx context.Context, table sqlname.Name) (missing []string, err error) {
	list, err := catalog.Indexes(ctx, c.db, c.store.Dialect(), table)
	if err != nil {
		return nil, err
	}
	there := map[string]bool{}
	for _, x := range list {
		there[x.Name] = true // even if it is not valid
	}
	text := c.store.Schema()
	for _, suffix := range []string{"due", "done", "dead", "age", "key", "tenant", "search"} {
		name := table.Index(suffix)
		wanted := strings.Contains(text, `"`+name+`"`) || strings.Contains(text, "`"+name+"`")
		if wanted && !there[name] {
			missing = append(missing, name)
		}
	}
	return missing, nil
}

// question returns the question to ask before the change; empty if there is nothing to ask.
func (m *migrationAnswer) question(table, dialect string) string {
	switch {
	case m.From > m.To:
		return fmt.Sprintf("bring the table %s from version %d to %d (processes that need version %d then fail to start)", table, m.From, m.To, m.From)
	case len(m.Indexes) > 0 && dialect == "postgres":
		return fmt.Sprintf("add %s to the table %s (writers wait until that is done; outbox doctor and outbox schema print have the statements to do it by hand, with CREATE INDEX CONCURRENTLY)",
			strings.Join(m.Indexes, ", "), table)
	default:
		return ""
	}
}

func (a *app) printMigration(m migrationAnswer) error {
	would := func(verb, past string) string {
		if m.DryRun {
			return "would " + verb
		}
		return past
	}
	return a.print(m, func(t *table) {
		switch {
		case m.From == 0:
			t.row(fmt.Sprintf("%s the table %s, version %d", would("create", "created"), a.table, m.To))
		case m.From != m.To:
			t.row(fmt.Sprintf("%s the table %s from version %d to %d", would("bring", "brought"), a.table, m.From, m.To))
		case len(m.Indexes) == 0:
			t.row(fmt.Sprintf("the table %s has version %d already", a.table, m.From))
		}
		for _, index := range m.Indexes {
			t.row(fmt.Sprintf("%s the index %s", would("add", "added"), index))
		}
	})
}
