package inbox

import (
	_ "embed" // the schemas

	"github.com/outboxkit/outbox-go/internal/sqltable"
)

// Dialect is the SQL that a database speaks.
type Dialect string

// The dialects. MySQL is also the dialect of MariaDB.
const (
	Postgres Dialect = "postgres"
	MySQL    Dialect = "mysql"
	SQLite   Dialect = "sqlite"
)

var (
	//go:embed schema/postgres.sql
	postgresSchema string
	//go:embed schema/mysql.sql
	mysqlSchema string
	//go:embed schema/sqlite.sql
	sqliteSchema string
)

// dialect has the statements of a database.
type dialect struct {
	*sqltable.Dialect
	schema string
	// record inserts (consumer, message id) and changes nothing when the row exists.
	record string
}

var dialects = map[Dialect]dialect{
	Postgres: {sqltable.Postgres, postgresSchema, "INSERT INTO {table} (consumer, message_id) VALUES ($1, $2) ON CONFLICT DO NOTHING"},
	// IGNORE also hides errors of values, which are checked before.
	MySQL:  {sqltable.MySQL, mysqlSchema, "INSERT IGNORE INTO {table} (consumer, message_id, handled_at) VALUES (?, ?, UTC_TIMESTAMP(6))"},
	SQLite: {sqltable.SQLite, sqliteSchema, "INSERT INTO {table} (consumer, message_id) VALUES (?, ?) ON CONFLICT DO NOTHING"},
}
