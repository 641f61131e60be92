package sqlstore

import (
	"context"
	"database/sql"
	_ "embed" // the schemas
	"fmt"
	"hash/fnv"
	"regexp"
	"strings"

	"github.com/outboxkit/outbox-go/outbox"
)

var (
	//go:embed schema/postgres.sql
	postgresSchema string
	//go:embed schema/mysql.sql
	mysqlSchema string
	//go:embed schema/sqlite.sql
	sqliteSchema string
)

var (
	schemaIndex   = regexp.MustCompile(`\{index:(\w+)\}`)
	schemaComment = regexp.MustCompile(`(?m)^--.*\n`)
	// An index that an option adds, with its comment.
	schemaAge    = regexp.MustCompile(`(?m)^(--.*\n)?\{age\}.*\n`)
	schemaTenant = regexp.MustCompile(`(?m)^(--.*\n)?\{tenant\}.*\n`)
	schemaKey    = regexp.MustCompile(`(?m)^(--.*\n)?\{key\}.*\n`)
	schemaSearch = regexp.MustCompile(`(?m)^(--.*\n)?\{search\}.*\n`)
)

// Schema is the DDL of the table, its indexes and its control table, for your
// migrations. It does not change what exists.
func (s *Store) Schema() string {
	text := map[string]string{"postgres": postgresSchema, "mysql": mysqlSchema, "sqlite": sqliteSchema}[s.d.name]
	if !s.ageIndex {
		text = schemaAge.ReplaceAllString(text, "")
	}
	if !s.keyIndex {
		text = schemaKey.ReplaceAllString(text, "")
	}
	if !s.tenants {
		text = schemaTenant.ReplaceAllString(text, "")
	}
	if !s.searchIndex {
		text = schemaSearch.ReplaceAllString(text, "")
	}
	quote := s.d.quote
	// In SQLite the schema precedes the index name, never its table's.
	unqualified, prefix := quote+s.table.Name+quote, ""
	if s.d == sqlite && s.table.Schema != "" {
		prefix = quote + s.table.Schema + quote + "."
	}
	text = strings.NewReplacer("{age}", "", "{key}", "", "{tenant}", "", "{search}", "", "{table}", s.table.Quoted(quote), "{control}", s.table.Table("control").Quoted(quote), "{unqualified}", unqualified).Replace(text)
	return schemaIndex.ReplaceAllStringFunc(text, func(m string) string {
		return prefix + quote + s.table.Index(schemaIndex.FindStringSubmatch(m)[1]) + quote
	})
}

// Schema is the DDL for a table of one of the dialects "postgres", "mysql" and
// "sqlite"; "postgresql" and "mariadb" are other names of the first two.
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

// CreateSchema creates the table, its indexes and its control table where they
// are missing. Several processes may do so at once.
func (s *Store) CreateSchema(ctx context.Context, db outbox.DB) error {
	const what = "creating the schema"
	statements := strings.Split(strings.TrimSpace(schemaComment.ReplaceAllString(s.Schema(), "")), ";\n")
	return s.inTx(ctx, db, what, nil, func(tx *sql.Tx) error {
		if s.d == postgres {
			// IF NOT EXISTS does not protect against a concurrent CREATE.
			h := fnv.New64a()
			_, _ = h.Write([]byte("outbox-go schema " + s.table.String()))
			q := s.query(64).add("SELECT pg_advisory_xact_lock(").arg(int64(h.Sum64())).add(")")
			if _, err := tx.ExecContext(ctx, q.text(), q.args...); err != nil {
				return s.fail(what, err)
			}
		}
		for _, statement := range statements {
			if statement = strings.TrimSuffix(strings.TrimSpace(statement), ";"); statement == "" {
				continue
			}
			if _, err := tx.ExecContext(ctx, statement); err != nil {
				return s.fail(what, err)
			}
		}
		return nil
	})
}
