package outboxtest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// ErrNoDatabase is the error of the methods of [DB] and [Scope] that would need a
// database.
var ErrNoDatabase = errors.New("outboxtest: there is no database behind the in-memory store")

// DB takes the place of a *sql.DB with a [Store]: as the pool of an outbox, or as the source of a
// [Scope]. The methods fail with [ErrNoDatabase].
type DB struct{ _ byte } // not empty, so that two DBs differ

// ExecContext fails with [ErrNoDatabase].
func (*DB) ExecContext(_ context.Context, query string, _ ...any) (sql.Result, error) {
	return nil, noDatabase(query)
}

// QueryContext fails with [ErrNoDatabase].
func (*DB) QueryContext(_ context.Context, query string, _ ...any) (*sql.Rows, error) {
	return nil, noDatabase(query)
}

// BeginTx fails with [ErrNoDatabase]: begin a [Scope] instead.
func (*DB) BeginTx(context.Context, *sql.TxOptions) (*sql.Tx, error) {
	return nil, fmt.Errorf("%w: use outboxtest.NewScope or outboxtest.NewTransactor for a transaction", ErrNoDatabase)
}

func noDatabase(query string) error {
	return fmt.Errorf("%w to run %.60q", ErrNoDatabase, query)
}
