package inbox

import (
	"context"
	"database/sql"
	_ "embed" // the schemas
	"strings"

	"github.com/outboxkit/outbox-go/internal/sqlname"
)

var (
	//go:embed schema/postgres.sql
	postgresSchema string
	//go:embed schema/mysql.sql
	mysqlSchema string
	//go:embed schema/sqlite.sql
	sqliteSchema string
)

// DB is a connection pool: *sql.DB, or a type that embeds it.
type DB interface {
	Execer
	BeginTx(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error)
}

// Schema is the DDL of the table and the index, for your migrations. The DDL does not change an
// existing table or index.
func (box *Inbox) Schema() string { return box.schema }

func schemaOf(d dialect, table sqlname.Name) string {
	index := d.quote + table.Index("handled") + d.quote
	unqualified := d.quote + table.Name + d.quote
	qualified := index
	if table.Schema != "" { // in SQLite the schema precedes the index name
		qualified = d.quote + table.Schema + d.quote + "." + index
	}
	return strings.NewReplacer("{table}", table.Quoted(d.quote), "{unqualified}", unqualified,
		"{index}", index, "{qualified_index}", qualified).Replace(d.schema)
}

// CreateSchema creates the table and the index if they are missing. Several processes may call
// CreateSchema at once.
func (box *Inbox) CreateSchema(ctx context.Context, db DB) (err error) {
	const what = "creating the schema"
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return box.fail(what, err)
	}
	defer func() { _ = tx.Rollback() }()
	statements := strings.Split(strings.TrimSpace(box.schema), ";\n")
	if box.d.lock != "" {
		statements = append([]string{box.d.lock}, statements...)
	}
	for _, statement := range statements {
		if _, err := tx.ExecContext(ctx, strings.TrimSuffix(statement, ";")); err != nil {
			return box.fail(what, err)
		}
	}
	if err := tx.Commit(); err != nil {
		return box.fail(what, err)
	}
	return nil
}
