// Package pgbouncer_test holds the Go code of docs/how-to/pgbouncer.md.
package pgbouncer_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/adapters/pgnotify"
	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

func Example_open() {
	dsn := os.Getenv("PGBOUNCER_URL") // postgres://app@pgbouncer:6432/shop?default_query_exec_mode=exec
	db, err := sqltx.Open("pgx", dsn)
	if err != nil {
		panic(err)
	}
	_ = db.Close()
}

// newOutbox delivers through the pooler, and listens past it.
func newOutbox() (*outbox.Outbox, error) {
	db, err := sqltx.Open("pgx", os.Getenv("PGBOUNCER_URL"))
	if err != nil {
		return nil, err
	}
	notifier, err := pgnotify.FromDSN(os.Getenv("DATABASE_URL")) // past the pooler
	if err != nil {
		return nil, err
	}
	return outbox.New(outbox.Config{DB: db, Store: sqlstore.Postgres(), Notifier: notifier})
}

func TestTheOutboxStartsBehindPgBouncerWithTheOption(t *testing.T) {
	direct := testdb.Open(t, testdb.Main()[0])
	through := direct.PgBouncer(t)
	require.NoError(t, sqlstore.Postgres().CreateSchema(t.Context(), direct.DB))
	t.Setenv("DATABASE_URL", direct.DSN)

	t.Setenv("PGBOUNCER_URL", through+"&default_query_exec_mode=exec")
	ob, err := newOutbox()
	require.NoError(t, err)
	require.NoError(t, ob.Start(t.Context()))
	require.NoError(t, ob.Close(t.Context()))

	t.Setenv("PGBOUNCER_URL", through)
	ob, err = newOutbox()
	require.NoError(t, err)
	require.ErrorContains(t, ob.Start(t.Context()), "default_query_exec_mode=exec", "which the page names")
}
