package sqlstore

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"

	"github.com/outboxkit/outbox-go/outbox"
)

// SchemaVersion is the version of the tables that this build needs. This build works with newer
// tables too, if the tables say so.
const SchemaVersion = 3

// schemaRow is the value of the row versionRow.
type schemaRow struct {
	Version int `json:"version"`
	// MinVersion: builds that need this version or a newer one work with the tables.
	MinVersion int `json:"min_version"`
}

// versionRow selects the row of the control table with the version. The tables of version 1 have no
// such row.
const versionRow = " WHERE kind = 'schema' AND name = 'version'"

// SchemaVersion reads the version of the tables. The version is 0 when one of the two tables does
// not exist.
func (s *Store) SchemaVersion(ctx context.Context, db outbox.DB) (int, error) {
	row, err := s.schemaRow(ctx, db, "reading the version of the schema")
	return row.Version, err
}

// schemaRow looks first whether the tables exist: on PostgreSQL, a statement that fails
// ends the transaction.
func (s *Store) schemaRow(ctx context.Context, db queryer, what string) (schemaRow, error) {
	table, control := s.table, s.table.Table("control")
	q := s.query(256)
	switch s.d.name {
	case "postgres":
		// Another schema of the search path may have such tables, but CREATE does not care.
		where := ""
		if table.Schema == "" {
			where = "quote_ident(current_schema()) || '.' || "
		}
		q.add("SELECT COUNT(to_regclass(", where).arg(table.Quoted(s.d.quote)).add(")) + COUNT(to_regclass(", where).arg(control.Quoted(s.d.quote)).add("))")
	case "mysql":
		q.add("SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = COALESCE(").arg(nullable(table.Schema)).
			add(", DATABASE()) AND table_name IN (").arg(table.Name).add(", ").arg(control.Name).add(")")
	default:
		q.add("SELECT COUNT(*) FROM ").sqliteMaster(s).
			add(" WHERE name COLLATE NOCASE IN (").arg(table.Name).add(", ").arg(control.Name).add(")")
	}
	tables := 0
	if err := s.rows(ctx, db, what, q, scanInto(&tables)); err != nil || tables < 2 {
		return schemaRow{}, err
	}
	return s.readVersion(ctx, db, what)
}

// readVersion reads the version of tables that exist.
func (s *Store) readVersion(ctx context.Context, db queryer, what string) (schemaRow, error) {
	row := schemaRow{Version: 1, MinVersion: 1}
	q := s.query(128).add("SELECT ", controlColumns, " FROM ").control(s).add(versionRow)
	err := s.rows(ctx, db, what, q, func(rows *sql.Rows) error {
		var value sql.NullString
		var other any
		if err := rows.Scan(&other, &other, &other, &value, &other); err != nil {
			return err
		}
		return row.parse(value.String)
	})
	return row, err
}

func (row *schemaRow) parse(value string) error {
	*row = schemaRow{}
	err := json.Unmarshal([]byte(value), row)
	if err == nil && row.Version >= row.MinVersion && row.MinVersion > 0 {
		return nil
	}
	return fmt.Errorf(`row 'schema', 'version' of the control table has no valid value (%d bytes); set it to that of the table's version, such as {"version":2,"min_version":1}`, len(value))
}

// fits reports tables that this build cannot work with.
func (s *Store) fits(row schemaRow) error {
	switch {
	case row.Version < SchemaVersion:
		return fmt.Errorf("the table has version %d of the schema, and this build needs version %d: run the command %s, call store.Migrate(ctx, db, sqlstore.SchemaVersion), or run the files from %04d on in outbox/sqlstore/schema/%s (docs/how-to/migrations.md)",
			row.Version, SchemaVersion, s.command("migrate"), row.Version+1, s.d.name)
	case row.MinVersion > SchemaVersion:
		return fmt.Errorf("the table has version %d of the schema, which needs a build for version %d or newer, and this one is for version %d: deploy a newer build, or go back with the newer build's command, %s --to %d (docs/how-to/migrations.md)",
			row.Version, row.MinVersion, SchemaVersion, s.command("migrate"), SchemaVersion)
	default:
		return nil
	}
}

// command is the command outbox schema for the store's table.
func (s *Store) command(verb string) string {
	command := "outbox schema " + verb
	if table := s.table.String(); table != DefaultTable {
		command += " --table " + table
	}
	return command
}
