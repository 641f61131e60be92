package sqlstore

import (
	"context"
	"fmt"
	"strings"

	"github.com/outboxkit/outbox-go/outbox"
)

// CheckRuns implements [outbox.RunReader]. It asks the catalog for the index of
// [WithKeyIndex].
func (s *Store) CheckRuns(ctx context.Context, db outbox.DB) error {
	return s.checkIndex(ctx, db, "key", "outbox.OrderedByKey", "WithKeyIndex()")
}

// CheckTenants implements [outbox.TenantReader].
func (s *Store) CheckTenants(ctx context.Context, db outbox.DB) error {
	return s.checkIndex(ctx, db, "tenant", "ClaimOptions.TenantsInTurn", "WithTenantIndex()")
}

// byIndex writes after the table's name that one of its indexes is to be used.
// PostgreSQL has nothing like that; see planned.
func (s *Store) byIndex(suffix string) string {
	name := s.d.quote + s.table.Index(suffix) + s.d.quote
	switch s.d.name {
	case "postgres":
		return ""
	case "mysql":
		return " FORCE INDEX (" + name + ")"
	default:
		return " INDEXED BY " + name
	}
}

// checkIndex fails when the table has no such index.
func (s *Store) checkIndex(ctx context.Context, db outbox.DB, suffix, reader, option string) error {
	const what = "checking the indexes"
	name := s.table.Index(suffix)
	q := s.query(256)
	switch s.d.name {
	case "postgres":
		q.add("SELECT COUNT(*) FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid WHERE indisvalid AND indrelid = to_regclass(").
			arg(s.table.Quoted(s.d.quote)).add(") AND relname = ").arg(name)
	case "mysql":
		q.add("SELECT COUNT(*) FROM information_schema.statistics WHERE table_schema = COALESCE(").arg(nullable(s.table.Schema)).
			add(", DATABASE()) AND table_name = ").arg(s.table.Name).add(" AND index_name = ").arg(name)
	default:
		q.add("SELECT COUNT(*) FROM ")
		if s.table.Schema != "" {
			q.add(s.d.quote, s.table.Schema, s.d.quote, ".")
		}
		q.add("sqlite_master WHERE type = 'index' AND name = ").arg(name)
	}
	n := 0
	if err := s.rows(ctx, db, what, q, scanInto(&n)); err != nil {
		return err
	}
	if n > 0 {
		return nil
	}
	return s.fail(what, fmt.Errorf("%s needs the index %s, which sqlstore.%s adds to the schema of a new table; for this one run: %s",
		reader, name, option, s.indexDDL(name)))
}

// indexDDL is the statement that adds an index of the schema to the table.
func (s *Store) indexDDL(name string) string {
	schema, _ := Schema(s.d.name, s.table.String(), WithKeyIndex(), WithTenantIndex()) // the name is valid
	for line := range strings.Lines(schema) {
		if !strings.Contains(line, s.d.quote+name+s.d.quote) {
			continue
		}
		if key, ok := strings.CutPrefix(strings.TrimSpace(line), "KEY "); ok {
			return "ALTER TABLE " + s.table.Quoted(s.d.quote) + " ADD KEY " + strings.TrimSuffix(key, ",")
		}
		return strings.TrimSpace(line)
	}
	return ""
}
