package idempotency

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
	// reserve inserts (key hash, fingerprint) and changes nothing when the row exists. While another
	// transaction that inserted the row is open, reserve waits.
	reserve string
	// store sets (status, headers, body) of a key hash.
	store string
	// find reads the row of a key hash.
	find string
}

const find = "SELECT fingerprint, status, headers, body, body IS NULL FROM {table} WHERE key_hash = "

var dialects = map[Dialect]dialect{
	Postgres: {
		sqltable.Postgres, postgresSchema,
		"INSERT INTO {table} (key_hash, fingerprint) VALUES ($1, $2) ON CONFLICT DO NOTHING",
		"UPDATE {table} SET status = $1, headers = $2, body = $3 WHERE key_hash = $4",
		find + "$1",
	},
	MySQL: {
		sqltable.MySQL, mysqlSchema,
		// After the client gave up, the statement would wait for the row for innodb_lock_wait_timeout, which
		// only MariaDB lets a statement set. MySQL reads that as a comment.
		"/*M!100101 SET STATEMENT innodb_lock_wait_timeout = {seconds} FOR */ " +
			"INSERT IGNORE INTO {table} (key_hash, fingerprint, created_at) VALUES (?, ?, UTC_TIMESTAMP(6))",
		"UPDATE {table} SET status = ?, headers = ?, body = ? WHERE key_hash = ?",
		find + "?",
	},
	SQLite: {
		sqltable.SQLite, sqliteSchema,
		"INSERT INTO {table} (key_hash, fingerprint) VALUES (?, ?) ON CONFLICT DO NOTHING",
		"UPDATE {table} SET status = ?, headers = ?, body = ? WHERE key_hash = ?",
		find + "?",
	},
}
