package doctor

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// tables checks the tables, their columns and their version.
func (p *patient) tables(ctx context.Context) error {
	found := len(p.findings)
	if err := p.Store.Check(ctx, p.DB, false); err != nil {
		if ctx.Err() != nil {
			return err
		}
		seen, wayOut := p.cutWayOut(ctx, err)
		p.report(Failure, seen, p.orPolicy(ctx, wayOut))
		return nil
	}
	if err := p.kinds(ctx); err != nil || len(p.findings) > found {
		return err
	}
	version, err := p.Store.SchemaVersion(ctx, p.DB)
	if err != nil {
		return err
	}
	if version > sqlstore.SchemaVersion {
		p.report(Note, fmt.Sprintf("the table has version %d of the schema, which this version %d may use", version, sqlstore.SchemaVersion), "update this command, so that doctor knows the newer schema")
		return nil
	}
	p.report(OK, fmt.Sprintf("%s has all columns, and version %d of the schema", p.table, version), "")
	return nil
}

// orPolicy names row level security as a cause, if it applies to this user: it hides the row of the
// version, so that the tables look old.
func (p *patient) orPolicy(ctx context.Context, wayOut string) string {
	if p.dialect != "postgres" {
		return wayOut
	}
	var tables sql.NullString
	err := p.one(ctx, "SELECT string_agg(oid::regclass::text, ', ' ORDER BY relname) FROM pg_class WHERE oid IN (to_regclass($1), to_regclass($2)) AND row_security_active(oid)",
		[]any{p.quoted(), p.table.Table("control").Quoted(`"`)}, &tables)
	if err != nil || tables.String == "" {
		return wayOut
	}
	return "row level security applies to this user: give it a policy for all rows of " + tables.String + ", or BYPASSRLS; if that is not the cause, " + wayOut
}

// cutWayOut splits the text of a store's error: the text ends with the way out.
func (p *patient) cutWayOut(ctx context.Context, err error) (seen, way string) {
	seen = strings.TrimPrefix(err.Error(), "outbox: ")
	if before, after, found := strings.Cut(seen, "; "); found {
		return before, after
	}
	if at := strings.LastIndex(seen, ": "); at > 0 && strings.Contains(seen[:at], "version") {
		return seen[:at], seen[at+2:]
	}
	return seen, p.wayOut(ctx, err)
}

// claims checks that several processes can claim.
func (p *patient) claims(ctx context.Context) error {
	if p.dialect == "sqlite" {
		p.report(OK, "SQLite has one writer at a time, so claims exclude each other", "")
		return nil
	}
	if err := p.Store.Check(ctx, p.DB, true); err != nil {
		if ctx.Err() != nil {
			return err
		}
		seen, way := p.cutWayOut(ctx, err)
		p.report(Warning, "several processes cannot deliver: "+seen, way+", or deliver with outbox.SingleNode or outbox.Ordered")
		return nil
	}
	p.report(OK, "several processes can deliver", "")
	return nil
}

// kinds checks that both names are tables, and that no process sees other tables under the names.
func (p *patient) kinds(ctx context.Context) error {
	control := p.table.Table("control")
	query, args := "", []any{p.quoted(), control.Quoted(`"`)}
	switch p.dialect {
	case "postgres":
		query = "SELECT relname, CASE relkind WHEN 'v' THEN 'a view' WHEN 'm' THEN 'a materialized view' ELSE 'a foreign table' END FROM pg_class WHERE oid IN (to_regclass($1), to_regclass($2)) AND relkind NOT IN ('r', 'p')"
	case "mysql":
		query = "SELECT table_name, 'a view' FROM information_schema.tables WHERE table_schema = COALESCE(NULLIF(?, ''), DATABASE()) AND table_name IN (?, ?) AND table_type LIKE '%VIEW%'"
		args = []any{p.table.Schema, p.table.Name, control.Name}
	default:
		query, args = "SELECT name, 'a '||type FROM sqlite_master WHERE name COLLATE NOCASE IN (?, ?) AND type <> 'table'", []any{p.table.Name, control.Name}
	}
	if err := p.each(ctx, query, args, func(rows *sql.Rows) error {
		var name, kind string
		if err := rows.Scan(&name, &kind); err != nil {
			return err
		}
		p.report(Failure, name+" is "+kind+", on which the statements of the outbox have no indexes or fail", "give the outbox the table itself, with its name and schema, such as --table schema.table")
		return nil
	}); err != nil || p.dialect != "postgres" || p.table.Schema != "" {
		return err
	}
	return p.shadows(ctx)
}

// shadows looks for tables of the same names in other schemas of the search path. A process whose
// search path has another order writes to another table.
func (p *patient) shadows(ctx context.Context) error {
	var found, others sql.NullString
	var together bool
	err := p.one(ctx, `SELECT (SELECT relnamespace::regnamespace::text FROM pg_class WHERE oid = to_regclass($1)),
 (SELECT string_agg(relnamespace::regnamespace::text, ', ' ORDER BY 1) FROM pg_class WHERE relname IN ($3, $4) AND relkind IN ('r', 'p', 'v', 'f') AND relpersistence <> 't'
   AND relnamespace::regnamespace::text = ANY(SELECT quote_ident(n) FROM unnest(current_schemas(false)) AS n) AND oid NOT IN (to_regclass($1), to_regclass($2))),
 (SELECT COUNT(DISTINCT relnamespace) = 1 FROM pg_class WHERE oid IN (to_regclass($1), to_regclass($2)))`,
		[]any{p.quoted(), p.table.Table("control").Quoted(`"`), p.table.Name, p.table.Table("control").Name}, &found, &others, &together)
	switch {
	case err != nil:
		return err
	case !together:
		p.report(Warning, "the table and its control table are in different schemas, so another search_path finds other tables",
			"ALTER TABLE the table that is in the wrong place SET SCHEMA, or name the schema in the name of the table")
	case others.String != "":
		p.report(Warning, fmt.Sprintf("the table is that of the schema %s, and the search_path has tables of the same names in %s: a process with another search_path uses other tables", found.String, others.String),
			"drop or rename the tables that no process uses, or name the schema in the name of the table")
	}
	return nil
}
