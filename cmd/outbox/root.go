package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/outboxkit/outbox-go/internal/sqlname"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// dsnVar is the environment variable that holds the database's address.
const dsnVar = "OUTBOX_DSN"

// app is a run of the program: the input and output streams, and the flags of all commands.
type app struct {
	in          *os.File
	out, errOut io.Writer

	dsn, table string
	json       bool
}

const rootHelp = `Looks into an outbox table and steers its delivery.

The database's address comes from OUTBOX_DSN or --dsn. It has one of these forms:
  postgres://user:password@host:5432/database
  host=… user=… password=… dbname=…            PostgreSQL too
  mysql://user:password@host:3306/database     MySQL and MariaDB
  user:password@tcp(host:3306)/database        MySQL and MariaDB too
  sqlite:path/to/file.db, file:path/to/file.db

Prefer OUTBOX_DSN: other users of the machine can see the flags of a process. The
address is never printed.

Times are printed in UTC. Commands that change something take --dry-run. They ask before
they change more than one event, unless --yes is given.`

func (a *app) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use: "outbox", Short: "Looks into an outbox table and steers its delivery",
		Long: rootHelp + "\n\n" + exitCodes,
		// Without Args, cobra prints an unknown command's name, which may be an address.
		Args: cobra.ArbitraryArgs, RunE: group,
		SilenceErrors: true, SilenceUsage: true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return refuseEmpty(cmd) },
	}
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.errOut)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return flagError(err) })
	flags := root.PersistentFlags()
	flags.StringVar(&a.dsn, "dsn", "", "address of the database; default: the environment variable "+dsnVar)
	flags.StringVar(&a.table, "table", sqlstore.DefaultTable, "name of the table, as in schema.table")
	flags.BoolVar(&a.json, "json", false, "print JSON")
	root.AddCommand(
		a.audit(), a.bench(), a.contracts(), a.dead(), a.docs(), a.doctor(), a.events(), a.nodes(), a.pause(), a.paused(),
		a.purge(), a.replay(), a.resume(), a.schema(), a.shares(), a.stats(), a.version(),
	)
	a.completeFlags(root)
	return root
}

// group runs a command that only has subcommands.
func group(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	problem := "is unknown"
	cmd.SuggestionsMinimumDistance = 2
	if similar := cmd.SuggestionsFor(args[0]); len(similar) > 0 {
		problem += "; did you mean " + similar[0] + "?"
	}
	return &usageError{"the subcommand of " + cmd.CommandPath(), problem}
}

// groupOf returns a command that only has subcommands.
func groupOf(use, short string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Args: cobra.ArbitraryArgs, RunE: group}
	cmd.AddCommand(commands...)
	return cmd
}

// takes checks the number of arguments. Unlike cobra's checks, it does not print the arguments.
func takes(least, most int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) >= least && (most < 0 || len(args) <= most) {
			return nil
		}
		return &usageError{cmd.CommandPath(), fmt.Sprintf("takes %s; it got %d", what, len(args))}
	}
}

var takesNothing = takes(0, 0, "no arguments")

// flagError says why a flag is wrong, without the value: the value may be an address.
func flagError(err error) error {
	var unknown *pflag.NotExistError
	var missing *pflag.ValueRequiredError
	var invalid *pflag.InvalidValueError
	switch {
	case errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() != "":
		return &usageError{"a flag with one dash", "is unknown; all flags but -h have two dashes and a long name"}
	case errors.As(err, &unknown) && isFlagName(unknown.GetSpecifiedName()):
		return &usageError{"--" + unknown.GetSpecifiedName(), "is an unknown flag"}
	case errors.As(err, &missing):
		return &usageError{"--" + missing.GetSpecifiedName(), "needs a value"}
	case errors.As(err, &invalid):
		kinds := map[string]string{"int": "a whole number", "bool": "true or false", "duration": "a duration such as 30s or 168h"}
		return &usageError{"--" + invalid.GetFlag().Name, fmt.Sprintf("is given a text of %d bytes; it takes %s", len(invalid.GetValue()), kinds[invalid.GetFlag().Value.Type()])}
	default:
		return &usageError{"a flag", "is malformed; flags are written --name value or --name=value"}
	}
}

func isFlagName(name string) bool {
	return len(name) <= 40 && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz-") == ""
}

// refuseEmpty refuses flags without a text, such as --event-type "$UNSET": they would
// choose everything.
func refuseEmpty(cmd *cobra.Command) (err error) {
	cmd.Flags().Visit(func(flag *pflag.Flag) {
		if text := flag.Value.String(); text == "" || text == "[]" {
			err = &usageError{"--" + flag.Name, "is empty; leave it out"}
		}
	})
	return err
}

// tableError returns the error of a wrong table name.
func tableError(err error) error {
	return &usageError{"--table", strings.TrimPrefix(err.Error(), "outbox: sqlstore.WithTable ")}
}

// with returns the RunE of a command that needs the database and the table.
func (a *app) with(fn func(ctx context.Context, c *client, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		c, err := a.open(cmd.Context(), false)
		if err != nil {
			return err
		}
		defer c.close()
		return a.explain(cmd.Context(), c, fn(cmd.Context(), c, args))
	}
}

// changes is with for a command that changes the table. The command refuses a table that this
// version of the library must not write to.
func (a *app) changes(fn func(ctx context.Context, c *client, args []string) error) func(*cobra.Command, []string) error {
	return a.with(func(ctx context.Context, c *client, args []string) error {
		if err := c.store.Check(ctx, c.db, false); err != nil {
			return err
		}
		host, _ := os.Hostname() // empty if it is not known
		return fn(outbox.WithOperator(ctx, outbox.Operator{Name: operator(), From: "outbox on " + host}), c, args)
	})
}

// explain replaces the error of a table that does not exist with an error that says how to create
// the table.
func (a *app) explain(ctx context.Context, c *client, err error) error {
	if err == nil || !isMissingTable(err) {
		return err
	}
	name, parseErr := sqlname.Parse(a.table)
	if parseErr != nil {
		return err
	}
	if missing, schemaErr := c.isSchemaMissing(ctx, name.Schema); schemaErr == nil && missing {
		return a.schemaError(name)
	}
	if has, tableErr := c.hasTable(ctx, name); tableErr == nil && has {
		return fmt.Errorf("the control table %s of the table %s does not exist in this database: create it with %s", name.Table("control"), a.table, a.createCommand())
	}
	return fmt.Errorf("the table %s does not exist in this database: create it with %s, or name another one with --table", a.table, a.createCommand())
}

// createCommand returns the command that creates the table.
func (a *app) createCommand() string {
	if a.table == sqlstore.DefaultTable {
		return "outbox schema create"
	}
	return "outbox schema create --table " + a.table
}

// schemaError reports that the schema of the table's name does not exist.
func (a *app) schemaError(name sqlname.Name) error {
	return fmt.Errorf("the schema %s does not exist in this database: create it with CREATE SCHEMA %s, then the table with %s; or name another table with --table", name.Schema, name.Schema, a.createCommand())
}
