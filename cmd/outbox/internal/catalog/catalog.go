// Package catalog reads the indexes of a table from the database.
package catalog

import (
	"context"
	"database/sql"

	"github.com/outboxkit/outbox-go/internal/sqlname"
)

// Index is an index of a table.
type Index struct {
	Name string
	// Valid is false for an index of PostgreSQL that could not be built.
	Valid bool
	// Scans is how often the index was used since the server's statistics began; -1: unknown.
	Scans   int64
	Primary bool
	// Constraint says that PostgreSQL made the index for a constraint, such as UNIQUE.
	Constraint bool
	// Definition names the columns in brackets.
	Definition string
}

// Indexes lists the indexes of a table by name; the list is empty if there is no such table. On
// PostgreSQL, reading the definitions waits for an ALTER TABLE that holds the table.
func Indexes(ctx context.Context, db *sql.DB, dialect string, table sqlname.Name) (list []Index, err error) {
	return indexes(ctx, db, dialect, table, "pg_get_indexdef(i.indexrelid)")
}

// Names is Indexes without the definitions. Names waits for no lock.
func Names(ctx context.Context, db *sql.DB, dialect string, table sqlname.Name) (list []Index, err error) {
	return indexes(ctx, db, dialect, table, "''")
}

func indexes(ctx context.Context, db *sql.DB, dialect string, table sqlname.Name, definition string) (list []Index, err error) {
	query, args := "", []any{table.Quoted(`"`)}
	switch dialect {
	case "postgres":
		query = `SELECT c.relname, i.indisvalid, COALESCE(s.idx_scan, 0), i.indisprimary, EXISTS (SELECT FROM pg_constraint WHERE conindid = c.oid), ` + definition + ` FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
 LEFT JOIN pg_stat_all_indexes s ON s.indexrelid = i.indexrelid WHERE i.indrelid = to_regclass($1) ORDER BY c.relname`
	case "mysql":
		query = "SELECT index_name, TRUE, -1, index_name = 'PRIMARY', FALSE, CONCAT('(', GROUP_CONCAT(CONCAT(column_name, CASE WHEN sub_part IS NULL THEN '' ELSE CONCAT(' ', sub_part) END, CASE WHEN collation = 'D' THEN ' DESC' ELSE '' END) ORDER BY seq_in_index), ')')" +
			" FROM information_schema.statistics" +
			" WHERE table_schema = COALESCE(NULLIF(?, ''), DATABASE()) AND table_name = ? GROUP BY index_name ORDER BY index_name"
		args = []any{table.Schema, table.Name}
	default:
		master := "sqlite_master"
		if table.Schema != "" {
			master = `"` + table.Schema + `".sqlite_master`
		}
		query = "SELECT name, 1, -1, sql IS NULL, FALSE, COALESCE(sql, '') FROM " + master + " WHERE type = 'index' AND tbl_name = ? COLLATE NOCASE ORDER BY name"
		args = []any{table.Name}
	}
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var x Index
		if err := rows.Scan(&x.Name, &x.Valid, &x.Scans, &x.Primary, &x.Constraint, &x.Definition); err != nil {
			return nil, err
		}
		list = append(list, x)
	}
	return list, rows.Err()
}

// Has reports whether the list has a valid index of this name.
func Has(list []Index, name string) bool {
	for _, x := range list {
		if x.Name == name && x.Valid {
			return true
		}
	}
	return false
}
