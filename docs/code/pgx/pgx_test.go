// Package pgx_test holds the code of docs/how-to/adapters/pgx.md that is in no sample.
package pgx_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	outboxpgx "github.com/outboxkit/outbox-go/adapters/pgx"
	"github.com/outboxkit/outbox-go/inbox"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
)

func handle(ctx context.Context, pool *pgxpool.Pool, box *inbox.Inbox, messageID, orderID string) (first bool, err error) {
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		first, err = box.Once(ctx, outboxpgx.Execer(tx), "mail", messageID, func(ctx context.Context) error {
			_, err := tx.Exec(ctx, "INSERT INTO mails (order_id) VALUES ($1)", orderID)
			return err
		})
		return err
	})
	return first, err
}

func TestAnInboxOnAPoolThatIsNotFollowed(t *testing.T) {
	t.Parallel()
	db := testdb.Open(t, testdb.Main()[0])
	pool, err := pgxpool.New(t.Context(), db.DSN)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	box, err := inbox.New(inbox.Config{Dialect: inbox.Postgres})
	require.NoError(t, err)
	for _, statement := range []string{box.Schema(), "CREATE TABLE mails (order_id TEXT)"} {
		_, err := pool.Exec(t.Context(), statement)
		require.NoError(t, err)
	}
	for _, want := range []bool{true, false} {
		first, err := handle(t.Context(), pool, box, "m-1", "o-1")
		require.NoError(t, err)
		require.Equal(t, want, first)
	}
	var mails int
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT COUNT(*) FROM mails").Scan(&mails))
	require.Equal(t, 1, mails)
	plain := outboxpgx.DB(pool)
	t.Cleanup(func() { require.NoError(t, plain.Close()) })
	_, err = box.Purge(t.Context(), plain, 1)
	require.NoError(t, err)
}
