package doctor

import (
	"context"
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
	if Worst(p.findings[began:]) < Warning {
		p.report(OK, "the indexes of the schema are there", "")
	}
	return nil
}

// otherColumns reports an index that has the name of an index of the schema, but other columns.
func (p *patient) otherColumns(x catalog.Index) {
	ddl := p.ddl(x.Name)
	if ddl == "" || slices.Equal(columnsIn(ddl), columnsIn(x.Definition)) {
		return
	}
	p.report(Failure, fmt.Sprintf("the index %s is on other columns than that of the schema: %.200s", x.Name, x.Definition), p.drop(x)+", then "+ddl)
}

// columnNames finds the names of columns in the definition of an index.
var columnNames = regexp.MustCompile(`\b(event_id|event_type|aggregate_type|aggregate_id|tenant_id|status|attempts|available_at|created_at|done_at|locked_by|locked_at|unique_key|unique_pending)\b`)

// columnsIn returns the columns of a definition, behind the name of the table, in their order.
func columnsIn(definition string) []string {
	_, list, _ := strings.Cut(definition, "(")
	return columnNames.FindAllString(list, -1)
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
