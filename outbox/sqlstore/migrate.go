package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"hash/fnv"
	"strings"

	"github.com/outboxkit/outbox-go/internal/sqlerr"
	"github.com/outboxkit/outbox-go/outbox"
)

// CreateSchema creates missing tables, and brings tables of an older version to [SchemaVersion].
// Tables of a newer version keep their version. Otherwise CreateSchema works as [Store.Migrate]: on
// tables of SchemaVersion it asks the catalog for each index, and creates only missing indexes.
func (s *Store) CreateSchema(ctx context.Context, db outbox.DB) error {
	_, err := s.migrate(ctx, db, "creating the schema", func(from int) (int, error) { return max(from, SchemaVersion), nil })
	return err
}

// Migrate changes the tables to a version of the schema, from 1 to [SchemaVersion], and returns the
// version that the tables had; 0: at least one of the two tables did not exist. Then Migrate
// creates the missing indexes of the schema and of the store's options. On a large PostgreSQL table
// a new index blocks writers, so create the index there by hand first, with CREATE INDEX
// CONCURRENTLY. Several processes may migrate at once, while others write and deliver. On
// PostgreSQL and SQLite a failure changes nothing. MySQL and MariaDB commit each statement: after a
// failure, call Migrate again.
//
// Migrate fails for a table that is newer than SchemaVersion, and does not drop the tables: the
// Down of version 1 of [Store.Migrations] drops them.
func (s *Store) Migrate(ctx context.Context, db outbox.DB, to int) (from int, err error) {
	if to < 1 || to > SchemaVersion {
		return 0, &outbox.FieldError{Field: "sqlstore.Store.Migrate to", Problem: fmt.Sprintf("is %d; the versions are 1 to %d, sqlstore.SchemaVersion", to, SchemaVersion)}
	}
	what := fmt.Sprintf("migrating to version %d of the schema", to)
	return s.migrate(ctx, db, what, func(from int) (int, error) {
		if from > SchemaVersion {
			return 0, s.fail(what, fmt.Errorf("the table has version %d, and this build knows versions up to %d: use the command or the library that made it", from, SchemaVersion))
		}
		return to, nil
	})
}

// migrate changes the tables from their version to the version that target returns for it.
func (s *Store) migrate(ctx context.Context, db outbox.DB, what string, target func(from int) (to int, err error)) (from int, err error) {
	_, err = s.changed(ctx, func() (int, error) {
		return 0, s.inTx(ctx, db, what, nil, func(tx *sql.Tx) error {
			if err := s.lockSchema(ctx, tx, what); err != nil {
				return err
			}
			row, err := s.schemaRow(ctx, tx, what)
			if err != nil {
				return err
			}
			to, err := target(row.Version)
			if err != nil {
				return err
			}
			from = row.Version
			return s.step(ctx, tx, what, from, to)
		})
	})
	return from, err
}

// lockSchema lets one process at a time migrate on PostgreSQL, where IF NOT EXISTS does
// not protect against a concurrent CREATE.
func (s *Store) lockSchema(ctx context.Context, tx *sql.Tx, what string) error {
	if s.d != postgres {
		return nil
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte("outbox-go schema " + s.table.String()))
	q := s.query(64).add("SELECT pg_advisory_xact_lock(").arg(int64(h.Sum64())).add(")")
	return s.run(ctx, tx, what, q.text(), q.args...)
}

// step runs the statements that lead from one version to another, and creates missing indexes.
func (s *Store) step(ctx context.Context, tx *sql.Tx, what string, from, to int) error {
	migrations := s.migrations()
	var statements []string
	for v := from; v < to && v < len(migrations); v++ {
		statements = append(statements, statementsOf(migrations[v].Up)...)
	}
	for v := from; v > to; v-- {
		statements = append(statements, statementsOf(migrations[v-1].Down)...)
	}
	for _, statement := range statements {
		if err := s.change(ctx, tx, what, statement); err != nil {
			return err
		}
	}
	indexes := s.indexes
	if to <= SchemaVersion { // a newer schema may have other indexes
		indexes = append(s.schemaIndexes(), indexes...)
	}
	return s.addIndexes(ctx, tx, what, indexes)
}

// change runs a statement of a migration. PostgreSQL refuses storage parameters of a partitioned
// table, because the parameters belong to the partitions: such a statement is left out.
func (s *Store) change(ctx context.Context, tx *sql.Tx, what, statement string) error {
	if s.d == postgres && setsStorage(statement) {
		q := s.query(128).add("SELECT COUNT(*) FROM pg_class WHERE relkind = 'p' AND oid = to_regclass(").arg(s.table.Quoted(s.d.quote)).add(")")
		partitioned := 0
		if err := s.rows(ctx, tx, what, q, scanInto(&partitioned)); err != nil || partitioned > 0 {
			return err
		}
	}
	return s.run(ctx, tx, what, statement)
}

// setsStorage reports whether a statement changes storage parameters.
func setsStorage(statement string) bool {
	return strings.HasPrefix(statement, "ALTER TABLE ") && (strings.Contains(statement, " SET (") || strings.Contains(statement, " RESET ("))
}

// addIndexes creates the missing indexes, and asks the catalog for each index, because CREATE INDEX
// IF NOT EXISTS waits for writers even if the index exists.
func (s *Store) addIndexes(ctx context.Context, tx *sql.Tx, what string, indexes []string) error {
	for _, index := range indexes {
		has, err := s.hasIndex(ctx, tx, what, index)
		if err != nil {
			return err
		}
		if has {
			continue
		}
		for _, statement := range s.indexDDL(index) {
			if err := s.run(ctx, tx, what, statement); err != nil && !exists(err) {
				return err
			}
		}
	}
	return nil
}

// exists reports whether an index or a column is there already: on MySQL another process was faster,
// or failed between the two; on SQLite the column was added without the index.
func exists(err error) bool {
	return sqlerr.HasNumber(err, 1060, 1061) || strings.Contains(err.Error(), "duplicate column name")
}

// run runs a statement of the schema.
func (s *Store) run(ctx context.Context, tx *sql.Tx, what, statement string, args ...any) error {
	if _, err := tx.ExecContext(ctx, statement, args...); err != nil {
		return s.fail(what, err)
	}
	return nil
}
