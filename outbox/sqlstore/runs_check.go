package sqlstore

import (
	"context"
	"fmt"
	"strings"

	"github.com/outboxkit/outbox-go/outbox"
)

// CheckRuns implements [outbox.RunReader]. CheckRuns asks the catalog for the index of
// [WithKeyIndex].
func (s *Store) CheckRuns(ctx context.Context, db outbox.DB) error {
	return s.checkIndex(ctx, db, "key", "outbox.OrderedByKey", "WithKeyIndex()")
}

// CheckTenants implements [outbox.TenantReader].
func (s *Store) CheckTenants(ctx context.Context, db outbox.DB) error {
	return s.checkIndex(ctx, db, "tenant", "ClaimOptions.TenantsInTurn", "WithTenantIndex()")
}

// byIndex is the hint, behind the table's name, that makes the database use an index. PostgreSQL
// has no such hint; see planned.
func (s *Store) byIndex(suffix string) string {
	name := s.d.quote + s.name().Index(suffix) + s.d.quote
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
	has, err := s.hasIndex(ctx, db, what, suffix)
	if err != nil || has {
		return err
	}
	return s.fail(what, fmt.Errorf("%s needs the index %s, which sqlstore.%s adds to the schema of a new table; for this one run: %s",
		reader, s.name().Index(suffix), option, strings.Join(s.indexDDL(suffix), "; ")))
}

// hasIndex asks the catalog for an index of the table.
func (s *Store) hasIndex(ctx context.Context, db queryer, what, suffix string) (bool, error) {
	name := s.name().Index(suffix)
	q := s.query(256)
	switch s.d.name {
	case "postgres":
		q.add("SELECT COUNT(*) FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid WHERE indisvalid AND indrelid = to_regclass(").
			arg(s.name().Quoted(s.d.quote)).add(") AND relname = ").arg(name)
	case "mysql":
		q.add("SELECT COUNT(*) FROM information_schema.statistics WHERE table_schema = COALESCE(").arg(nullable(s.name().Schema)).
			add(", DATABASE()) AND table_name = ").arg(s.name().Name).add(" AND index_name = ").arg(name)
	default:
		q.add("SELECT COUNT(*) FROM ").sqliteMaster(s).add(" WHERE type = 'index' AND name = ").arg(name)
	}
	n := 0
	err := s.rows(ctx, db, what, q, scanInto(&n))
	return n > 0, err
}

// sqliteMaster writes the name of SQLite's catalog of the table's schema.
func (q *query) sqliteMaster(s *Store) *query {
	if s.name().Schema != "" {
		q.add(q.d.quote, s.name().Schema, q.d.quote, ".")
	}
	return q.add("sqlite_master")
}
