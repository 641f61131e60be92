package inbox

// Dialect is the SQL that a database speaks.
type Dialect string

// The dialects. MySQL is also the dialect of MariaDB.
const (
	Postgres Dialect = "postgres"
	MySQL    Dialect = "mysql"
	SQLite   Dialect = "sqlite"
)

// dialect holds the statements of a database.
type dialect struct {
	quote string
	// record inserts (consumer, message id) and changes nothing when the row exists.
	record string
	// purge deletes a batch of rows that are older than a number of microseconds.
	purge string
	// lock serializes the creation of the schema; empty: not needed.
	lock string
	// schema is the DDL.
	schema string
}

var dialects = map[Dialect]dialect{
	Postgres: {
		quote:  `"`,
		record: `INSERT INTO {table} (consumer, message_id) VALUES ($1, $2) ON CONFLICT DO NOTHING`,
		purge: `DELETE FROM {table} WHERE (consumer, message_id) IN (SELECT consumer, message_id FROM {table} ` +
			`WHERE handled_at < now() - CAST($1 AS BIGINT) * INTERVAL '1 microsecond' ORDER BY handled_at LIMIT ` + purgeBatch + `)`,
		// IF NOT EXISTS does not protect against a concurrent CREATE.
		lock:   `SELECT pg_advisory_xact_lock(hashtext('outbox-go inbox schema'))`,
		schema: postgresSchema,
	},
	MySQL: {
		quote: "`",
		// IGNORE also hides errors of values, which are checked before.
		record: "INSERT IGNORE INTO {table} (consumer, message_id, handled_at) VALUES (?, ?, UTC_TIMESTAMP(6))",
		purge:  "DELETE FROM {table} WHERE handled_at < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND ORDER BY handled_at LIMIT " + purgeBatch,
		schema: mysqlSchema,
	},
	SQLite: {
		quote:  `"`,
		record: `INSERT INTO {table} (consumer, message_id) VALUES (?, ?) ON CONFLICT DO NOTHING`,
		purge: `DELETE FROM {table} WHERE (consumer, message_id) IN (SELECT consumer, message_id FROM {table} ` +
			`WHERE handled_at < CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER) - ? ORDER BY handled_at LIMIT ` + purgeBatch + `)`,
		schema: sqliteSchema,
	},
}
