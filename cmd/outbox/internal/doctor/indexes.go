package doctor

import (
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/outboxkit/outbox-go/cmd/outbox/internal/catalog"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// readBy names the work that needs an index, by the end of the index's name. Other indexes are only
// for some modes.
var readBy = map[string]string{"due": "every poll", "done": "purging", "dead": "dead letters and purging"}

// optional are the indexes that an option of the store adds, and the index that a search proposes.
var optional = map[string]string{
	"age": "purging in WriterOnly", "key": "OrderedByKey", "tenant": "Claim.TenantsInTurn", "search": "finding the events of an aggregate",
	"unique": "unique keys of events", "prefix": "finding events by the beginning of their ids",
}

// indexes compares the table's indexes with the indexes of the schema.
func (p *patient) indexes(ctx context.Context) error {
	list, err := catalog.Indexes(ctx, p.DB, p.dialect, p.table)
	if err != nil {
		return err
	}
	have := map[string]bool{}
	began := len(p.findings)
	for _, x := range list {
		if have[x.Name] = x.Valid; !x.Valid {
			p.report(Failure, fmt.Sprintf("the index %s is not valid, because creating it failed", x.Name), p.drop(x)+", then "+p.ddl(x.Name))
			have[x.Name] = true // the index is not missing
			continue
		}
		if !x.Primary {
			p.extraIndex(x)
			p.otherColumns(x)
		}
	}
	for _, suffix := range []string{"due", "done", "dead"} {
		name := p.table.Index(suffix)
		if ddl := p.ddl(name); ddl != "" && !have[name] {
			level := Warning
			if suffix == "due" {
				level = Failure
			}
			p.report(level, fmt.Sprintf("the index %s is missing, so %s reads the whole table", name, readBy[suffix]), ddl)
		}
	}
	for _, look := range []func() error{
		func() error { return p.primaryKeys(ctx, list) },
		func() error { return p.hidden(ctx) },
		func() error { return p.references(ctx) },
	} {
		if err := look(); err != nil {
			return err
		}
	}
	if Worst(p.findings[began:]) < Warning {
		p.report(OK, "the indexes of the schema are there", "")
	}
	return nil
}

// otherColumns reports an index that has the name of an index of the schema, but other columns, another
// order or another condition.
func (p *patient) otherColumns(x catalog.Index) {
	ddl := p.ddl(x.Name)
	if ddl == "" || slices.Equal(columnsIn(ddl), columnsIn(x.Definition)) {
		return
	}
	p.report(Failure, fmt.Sprintf("the index %s is on other columns than that of the schema, or has another order or condition: %.300s", x.Name, x.Definition), p.drop(x)+", then "+ddl)
}

// indexParts finds the names of columns in the definition of an index, and each word that changes the
// use of the index: the order, the collation, the operators, the values of the condition.
var indexParts = regexp.MustCompile(`\b(event_id|event_type|aggregate_type|aggregate_id|tenant_id|status|attempts|available_at|created_at|done_at|locked_by|locked_at|unique_key|unique_pending|DESC|COLLATE|NULLS|AND|NOT|\d+)\b|\w+_pattern_ops`)

// columnsIn returns the parts of a definition, behind the name of the table, in their order.
func columnsIn(definition string) []string {
	_, list, _ := strings.Cut(definition, "(")
	return indexParts.FindAllString(list, -1)
}

// primaryKeys checks the primary keys of both tables: marks find rows by event_id, and the rows of the
// control table exclude each other by their key.
func (p *patient) primaryKeys(ctx context.Context, list []catalog.Index) error {
	control := p.table.Table("control")
	ofControl, err := catalog.Indexes(ctx, p.DB, p.dialect, control)
	if err != nil {
		return err
	}
	for _, t := range []struct {
		name, quoted string
		list         []catalog.Index
		key          []string
	}{
		{p.table.Name, p.quoted(), list, []string{"event_id"}},
		{control.Name, p.quote(control), ofControl, []string{"kind", "name"}},
	} {
		at := slices.IndexFunc(t.list, func(x catalog.Index) bool { return x.Primary })
		key, add := strings.Join(t.key, ", "), "ALTER TABLE "+t.quoted+" ADD PRIMARY KEY ("+strings.Join(t.key, ", ")+")"
		if p.dialect == "sqlite" {
			add = "make the table again as outbox schema print has it, and copy the rows: SQLite adds no primary key"
		}
		switch {
		case at < 0:
			p.report(Failure, fmt.Sprintf("%s has no primary key on %s, so statements read the whole table, and rows may be there twice", t.name, key), add)
		case t.list[at].Definition != "" && !beginsWith(t.list[at].Definition, t.key):
			p.report(Failure, fmt.Sprintf("the primary key of %s is %.200s and does not begin with %s, so statements read the whole table, and rows may be there twice", t.name, keyOf(t.list[at].Definition), key), p.dropKey(t.quoted, t.list[at])+", then "+add)
		}
	}
	return nil
}

// keyOf is the part of a definition in brackets.
func keyOf(definition string) string {
	_, list, _ := strings.Cut(definition, "(")
	list, _, _ = strings.Cut(list, ")")
	return "(" + list + ")"
}

func beginsWith(definition string, key []string) bool {
	have := strings.FieldsFunc(keyOf(definition), func(r rune) bool { return strings.ContainsRune("(), \"`", r) })
	return len(have) >= len(key) && slices.Equal(have[:len(key)], key)
}

func (p *patient) dropKey(table string, x catalog.Index) string {
	if p.dialect == "mysql" {
		return "ALTER TABLE " + table + " DROP PRIMARY KEY"
	}
	return "ALTER TABLE " + table + ` DROP CONSTRAINT "` + strings.ReplaceAll(x.Name, `"`, `""`) + `"`
}

// hidden looks for indexes that MySQL or MariaDB does not use although they are there.
func (p *patient) hidden(ctx context.Context) error {
	if p.dialect != "mysql" {
		return nil
	}
	for _, way := range []struct{ column, unwanted, clause string }{{"is_visible", "NO", "VISIBLE"}, {"ignored", "YES", "NOT IGNORED"}} {
		n := 0
		if err := p.one(ctx, "SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = 'information_schema' AND table_name = 'STATISTICS' AND column_name = ?", []any{way.column}, &n); err != nil || n == 0 {
			if err != nil {
				return err
			}
			continue
		}
		if err := p.each(ctx, "SELECT DISTINCT index_name FROM information_schema.statistics WHERE table_schema = COALESCE(NULLIF(?, ''), DATABASE()) AND table_name = ? AND "+way.column+" = ?",
			[]any{p.table.Schema, p.table.Name, way.unwanted}, func(rows *sql.Rows) error {
				var name string
				if err := rows.Scan(&name); err != nil {
					return err
				}
				if p.ddl(name) != "" {
					p.report(Failure, "the index "+name+" is there, and the server is told to ignore it", "ALTER TABLE "+p.quoted()+" ALTER INDEX `"+name+"` "+way.clause)
				}
				return nil
			}); err != nil {
			return err
		}
	}
	return nil
}

// references looks for foreign keys of other tables, which refuse to let purges and dead letters go.
func (p *patient) references(ctx context.Context) error {
	query, args := "", []any{p.quoted()}
	switch p.dialect {
	case "postgres":
		query = "SELECT conrelid::regclass::text, quote_ident(conname) FROM pg_constraint WHERE contype = 'f' AND confrelid = to_regclass($1) AND confdeltype IN ('a', 'r') ORDER BY 1, 2"
	case "mysql":
		query = "SELECT table_name, constraint_name FROM information_schema.referential_constraints WHERE unique_constraint_schema = COALESCE(NULLIF(?, ''), DATABASE()) AND referenced_table_name = ? AND delete_rule IN ('NO ACTION', 'RESTRICT') ORDER BY 1, 2"
		args = []any{p.table.Schema, p.table.Name}
	default:
		query = `SELECT DISTINCT m.name, '' FROM sqlite_master AS m, pragma_foreign_key_list(m.name) AS f WHERE m.type = 'table' AND f."table" = ? COLLATE NOCASE AND f.on_delete IN ('NO ACTION', 'RESTRICT') ORDER BY 1`
		args = []any{p.table.Name}
	}
	return p.each(ctx, query, args, func(rows *sql.Rows) error {
		var table, name string
		if err := rows.Scan(&table, &name); err != nil {
			return err
		}
		way := "ALTER TABLE " + table + " DROP CONSTRAINT " + name
		switch p.dialect {
		case "mysql":
			way = "ALTER TABLE `" + table + "` DROP FOREIGN KEY `" + name + "`"
		case "sqlite":
			way = "make the table again without the foreign key, or with ON DELETE CASCADE"
		}
		p.report(Warning, fmt.Sprintf("the table %s has a foreign key to %s, so the database refuses to purge the events that it names", table, p.table.Name), way)
		return nil
	})
}

// extraIndex reports an index that not every outbox needs.
func (p *patient) extraIndex(x catalog.Index) {
	use := ""
	switch x.Scans {
	case -1:
	case 0:
		use = ", and nothing has used it since the server's statistics began"
	default:
		use = fmt.Sprintf(", and it was used %d times since the server's statistics began", x.Scans)
	}
	drop := p.drop(x)
	for suffix := range readBy {
		if x.Name == p.table.Index(suffix) {
			return
		}
	}
	if x.Name == p.table.Index("old") {
		p.report(Warning, "the index "+x.Name+" is of an early version; PostgreSQL may read delivered rows through it to list dead ones", drop)
		return
	}
	for suffix, reader := range optional {
		if x.Name == p.table.Index(suffix) {
			if x.Scans == 0 {
				p.report(Note, fmt.Sprintf("the index %s is for %s%s", x.Name, reader, use), "if no process needs it: "+drop)
			}
			return
		}
	}
	p.report(Note, fmt.Sprintf("the index %s is not of this schema; every write pays for it%s", x.Name, use), "if nothing of yours reads it: "+drop)
}

// drop returns the statement that drops an index.
func (p *patient) drop(x catalog.Index) string {
	quote := `"`
	if p.dialect == "mysql" {
		quote = "`"
	}
	name := quote + strings.ReplaceAll(x.Name, quote, quote+quote) + quote
	switch {
	case x.Constraint:
		return "ALTER TABLE " + p.quoted() + " DROP CONSTRAINT " + name
	case p.dialect == "mysql":
		return "ALTER TABLE " + p.quoted() + " DROP INDEX " + name
	case p.table.Schema != "":
		return "DROP INDEX " + quote + p.table.Schema + quote + "." + name
	default:
		return "DROP INDEX " + name
	}
}

// ddl returns the statement that creates an index of the schema; empty if the dialect has no such
// index.
func (p *patient) ddl(name string) string {
	text, err := sqlstore.Schema(p.dialect, p.table.String(), sqlstore.WithAgeIndex(), sqlstore.WithKeyIndex(), sqlstore.WithTenantIndex(), sqlstore.WithSearchIndex(), sqlstore.WithUniqueIndex())
	if err != nil {
		return ""
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if !strings.Contains(line, `"`+name+`"`) && !strings.Contains(line, "`"+name+"`") {
			continue
		}
		if key, found := strings.CutPrefix(line, "KEY "); found {
			return "ALTER TABLE " + p.quoted() + " ADD KEY " + strings.TrimSuffix(key, ",")
		}
		if p.dialect == "postgres" {
			line = strings.Replace(line, "INDEX IF NOT EXISTS", "INDEX CONCURRENTLY", 1)
		}
		return strings.TrimSuffix(line, ";")
	}
	return ""
}
