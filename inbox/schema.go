package inbox

import (
	"context"
	"database/sql"
	"time"
)

// DB is a connection pool: *sql.DB, or a type that embeds it.
type DB interface {
	Execer
	BeginTx(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error)
}

// Schema is the DDL of the table and the index, for your migrations. The DDL does not change an
// existing table or index.
func (box *Inbox) Schema() string { return box.table.Schema }

// CreateSchema creates the table and the index if they are missing. Several processes may call
// CreateSchema at once.
func (box *Inbox) CreateSchema(ctx context.Context, db DB) error { return box.table.Create(ctx, db) }

// Purge deletes the records that are older than age, by the database's clock, in batches of 1,000,
// each in a separate transaction. Purge returns how many records it deleted, also with an error. A
// message that comes again after the record was purged is handled again: choose an age far above
// the longest time after which your source delivers a message once more. The age must be positive.
func (box *Inbox) Purge(ctx context.Context, db Execer, age time.Duration) (deleted int64, err error) {
	return box.table.Purge(ctx, db, age)
}
