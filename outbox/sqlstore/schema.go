package sqlstore

import (
	"embed"
	"fmt"
	"io/fs"
	"strings"

	"github.com/outboxkit/outbox-go/outbox"
)

// schemaFiles contain the names of the default table. The files can also be run as they are.
//
//go:embed schema
var schemaFiles embed.FS

// Migration is the SQL of a version of the schema.
type Migration struct {
	// Version is 1 or more.
	Version int
	// Name is a word for the version, from the name of the file.
	Name string
	// Up changes a table of the version before to this version; the Up of version 1 creates the
	// tables, and the indexes of the store's options. Down reverses Up. Both are statements that
	// end in a semicolon and a new line.
	Up, Down string
}

// Migrations are the versions of the schema, from 1 to [SchemaVersion], as SQL for this store's
// table and options: for a migration tool that runs Go, or for files of your own. A store with a
// bad option has no migrations.
func (s *Store) Migrations() []Migration {
	list := s.migrations()
	if len(list) > 0 {
		list[0].Up += strings.Join(s.optionalIndexes(), "")
	}
	return list
}

// migrations are the versions without the indexes of the options.
func (s *Store) migrations() []Migration {
	if s.err != nil {
		return nil
	}
	list := make([]Migration, SchemaVersion)
	for i := range list {
		files, _ := fs.Glob(schemaFiles, fmt.Sprintf("schema/%s/%04d_*.up.sql", s.d.name, i+1))
		up := files[0] // a test reads all of them
		_, name, _ := strings.Cut(strings.TrimSuffix(up, ".up.sql"), "_")
		list[i] = Migration{
			Version: i + 1, Name: name,
			Up: s.schemaFile(up), Down: s.schemaFile(strings.Replace(up, ".up.", ".down.", 1)),
		}
	}
	return list
}

// optionalIndexes are the statements that create the indexes of the store's options.
func (s *Store) optionalIndexes() (statements []string) {
	for _, index := range s.indexes {
		for _, statement := range s.indexDDL(index) {
			statements = append(statements, statement+";\n")
		}
	}
	return statements
}

// schemaIndexes are the indexes of every table.
func (s *Store) schemaIndexes() []string {
	if s.d.name == "mysql" {
		return []string{"due", "done"}
	}
	return []string{"due", "done", "dead"}
}

// indexDDL are the statements that create an index, and the column of the unique index.
func (s *Store) indexDDL(suffix string) (statements []string) {
	name := s.d.quote + s.table.Index(suffix) + s.d.quote
	for _, file := range []string{s.d.name + "/0001_outbox.up.sql", "optional/" + s.d.name + ".sql"} {
		for _, statement := range statementsOf(s.schemaFile("schema/" + file)) {
			if _, columns, ok := strings.Cut(statement, "KEY "+name+" "); ok { // MySQL: within CREATE TABLE
				columns, _, _ = strings.Cut(columns, ")")
				return []string{"CREATE INDEX " + name + " ON " + s.table.Quoted(s.d.quote) + " " + columns + ")"}
			}
			if strings.Contains(statement, name) || suffix == uniqueIndex && strings.Contains(statement, "ADD COLUMN") {
				statements = append(statements, statement)
			}
		}
	}
	return statements
}

// schemaFile is the text of a file with the names of this store.
func (s *Store) schemaFile(path string) string {
	content, _ := schemaFiles.ReadFile(path) // a test reads all of them
	parts := strings.Split(string(content), "outbox_event")
	text := parts[0]
	for _, part := range parts[1:] {
		before, index := strings.CutSuffix(text, "idx_")
		after := strings.TrimLeft(part, "_abcdefghijklmnopqrstuvwxyz")
		suffix := strings.TrimPrefix(strings.TrimSuffix(part, after), "_")
		text = before + s.schemaName(index, suffix, strings.HasSuffix(before, " ON ")) + after
	}
	return text
}

// schemaName is the name of the table, of its control table or of an index. SQLite wants the table
// after ON without the schema, and the index with the schema.
func (s *Store) schemaName(index bool, suffix string, on bool) string {
	quote, table := s.d.quote, s.table
	switch {
	case index && s.d == sqlite && table.Schema != "":
		return quote + table.Schema + quote + "." + quote + table.Index(suffix) + quote
	case index:
		return quote + table.Index(suffix) + quote
	case suffix != "":
		table = table.Table(suffix)
	case on && s.d == sqlite:
		table.Schema = ""
	}
	return table.Quoted(quote)
}

// statementsOf are the statements of a file, without comments and semicolons.
func statementsOf(text string) []string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "--") {
			b.WriteString(line)
		}
	}
	return strings.Split(strings.TrimSuffix(strings.TrimSpace(b.String()), ";"), ";\n")
}

// Schema is the DDL of the table, the indexes and the control table in their newest version, for
// your migrations: the Up of all [Store.Migrations]. Run the DDL on a database that has no such
// table.
func (s *Store) Schema() string {
	var b strings.Builder
	for _, m := range s.Migrations() {
		b.WriteString(m.Up)
	}
	return b.String()
}

// Schema is the DDL for a table of the dialect "postgres", "mysql" or "sqlite"; "postgresql" and
// "mariadb" are other names of the first two.
func Schema(dialect, tableName string, opts ...Option) (string, error) {
	newDialect := map[string]func(...Option) *Store{
		"postgres": Postgres, "postgresql": Postgres, "mysql": MySQL, "mariadb": MySQL, "sqlite": SQLite,
	}[dialect]
	if newDialect == nil {
		return "", &outbox.FieldError{Field: "sqlstore.Schema dialect", Problem: fmt.Sprintf("is %.40q; known are postgres, mysql, mariadb and sqlite", dialect)}
	}
	s := newDialect(append([]Option{WithTable(tableName)}, opts...)...)
	if s.err != nil {
		return "", s.err
	}
	return s.Schema(), nil
}
